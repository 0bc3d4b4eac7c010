"""The two views of the shop."""

import json

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.jobs import pay
from shop.models import Order


@csrf_exempt
@require_POST
def create(request: HttpRequest) -> JsonResponse:
    order = Order.objects.create(item=json.loads(request.body)["item"])
    pay.enqueue(order.pk)  # after the commit, so the job finds the order
    return JsonResponse({"id": order.pk}, status=201)


def show(request: HttpRequest, key: int) -> JsonResponse:
    order = get_object_or_404(Order, pk=key)
    return JsonResponse({"item": order.item, "state": order.state})


urlpatterns = [path("orders", create), path("orders/<int:key>", show)]
