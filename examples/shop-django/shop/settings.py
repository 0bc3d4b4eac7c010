"""Settings of the shop; the line of jobwire is the first of INSTALLED_APPS."""

from pathlib import Path

SECRET_KEY = "only for development"
DEBUG = True
USE_TZ = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path("shop.sqlite3"),
        "OPTIONS": {"timeout": 20},
        "ATOMIC_REQUESTS": True,  # an order that fails enqueues no job
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["jobwire.django", "shop"]
