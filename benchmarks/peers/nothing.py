"""The job that jobwire runs here; `sidekiq/nothing.rb` is its twin."""

from jobwire import App

app = App()


@app.job(name="Nothing")
def nothing(number: int) -> None:
    pass
