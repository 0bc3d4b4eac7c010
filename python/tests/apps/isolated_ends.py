"""Jobs in processes of their own that end in each way: a value, an odd value, later, never."""

from __future__ import annotations

import time

from jobwire import App, Snooze

app = App()


@app.job(name="Seven", isolated=True, keep_result=60)
def seven() -> int:
    return 7


@app.job(name="Echo", isolated=True, keep_result=60)
def echo(one: object) -> object:
    return one


@app.job(name="Odd", isolated=True, keep_result=60)
def odd() -> object:
    return {1, 2}


@app.job(name="Fail", isolated=True, keep_result=60, retry=0)
def fail() -> None:
    raise ValueError("seven")


@app.job(name="Nap", isolated=True)
def nap() -> None:
    raise Snooze(3600)


@app.job(name="Wait", isolated=True, keep_result=60)
def wait(key: str) -> None:
    app.client.push("Begun", [key], queue="begun")
    time.sleep(60)
