from django.http import HttpRequest, HttpResponse
from django.urls import path


def hello(request: HttpRequest) -> HttpResponse:
    name = request.GET.get("name", "world")
    return HttpResponse(f"Hello {name} from Django\n", content_type="text/plain; charset=utf-8")


urlpatterns = [path("", hello)]
