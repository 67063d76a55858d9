import os

from django.core.management.utils import get_random_secret_key

# Without one in the environment, each version has its own: sessions end with the next deploy.
SECRET_KEY = os.environ.get("SECRET_KEY") or get_random_secret_key()
DEBUG = False
ALLOWED_HOSTS = ["*"]  # kvmserver's routes decide

ROOT_URLCONF = "website.urls"
WSGI_APPLICATION = "website.wsgi.application"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
]
