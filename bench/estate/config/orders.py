"""Accepts orders over HTTP and queues the work for two Celery workers, which run the same file: MAIL sends mail, REPORTS reads a table."""

import random
import time

import requests
from celery import Celery
from flask import Flask, jsonify

tasks = Celery("orders", broker="redis://{{address .Program "redis"}}/2")
tasks.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
app = Flask("orders")


@tasks.task(name="send_mail")
def send_mail(order):
    time.sleep(random.uniform(0.005, 0.02))  # the mail server


@tasks.task(name="build_report")
def build_report(order):
    {{if eq .Program "reports"}}requests.get("http://{{address "reports" "datasette"}}/shop/orders/%d.json" % order, timeout=10).raise_for_status(){{else}}raise NotImplementedError("the worker of the queue does it"){{end}}


@app.get("/ready")
def ready():
    return "ok"


@app.post("/mail/<int:order>")
def mail(order):
    send_mail.apply_async((order,), queue="mail")
    return jsonify(order=order)


@app.post("/report/<int:order>")
def report(order):
    build_report.apply_async((order,), queue="reports")
    return jsonify(order=order)
