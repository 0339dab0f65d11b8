"""The proxy that goes wrong on order, before a real server."""

import asyncio
import collections
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from faulty_proxy import FAULTS, PASSING, Proxy, always, at, faulty, spread

from benchmarks.servers import Server

ASKED: dict[str, Any] = {
    "model": "served",
    "prompt": [1, 5, 6, 7],
    "max_tokens": 4,
    "temperature": 0.6,
    "seed": 3,
    "logprobs": 0,
    "return_token_ids": True,
}


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    with faulty(server.address) as made:
        yield made


def ask(proxy: Proxy, **fields: Any) -> httpx.Response:
    return httpx.post(f"{proxy.url}/completions", json=ASKED | fields, timeout=600)


def choice(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200
    [found] = answer.json()["choices"]
    assert isinstance(found, dict)
    return found


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


def test_what_is_passed_on_is_as_it_was(server: Server, proxy: Proxy) -> None:
    proxy.plan, before = always(None), proxy.forwarded
    direct = server.post("/v1/completions", ASKED)["choices"]
    assert [choice(ask(proxy))] == direct and proxy.forwarded == before + 1
    models = httpx.get(f"{proxy.url}/models").json()
    assert [model["id"] for model in models["data"]] == [server.name]
    wrong = ask(proxy, model="another")
    assert wrong.status_code == 404 and "another" in wrong.text
    until(lambda: server.requests() == 0 and proxy.in_flight == 0)


@pytest.mark.parametrize("fault", [name for name in FAULTS if name[0].isdigit()])
def test_a_status_is_said_and_nothing_is_forwarded(proxy: Proxy, fault: str) -> None:
    proxy.plan, before = always(fault), proxy.forwarded
    answer = ask(proxy)
    assert answer.status_code == int(fault[:3]) and answer.json()["error"]["message"]
    assert ("retry-after" in answer.headers) == (fault in ("429 with seconds", "429 with a date"))
    assert proxy.forwarded == before


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("reset before", httpx.TransportError),
        ("reset after", httpx.TransportError),
        ("cut", httpx.RemoteProtocolError),
        ("no JSON", json.JSONDecodeError),
    ],
)
def test_a_broken_answer_is_none(proxy: Proxy, fault: str, error: type[Exception]) -> None:
    proxy.plan = always(fault)
    with pytest.raises(error):
        ask(proxy).json()


def test_answers_that_say_too_little(proxy: Proxy) -> None:
    plain = {name: None for name in ("no object", "empty choices", "null choices")}
    answers = {}
    for name in plain:
        proxy.plan = always(name)
        answers[name] = ask(proxy).json()
    assert isinstance(answers["no object"], list)
    assert answers["empty choices"]["choices"] == [] and answers["null choices"]["choices"] is None
    for reason in ("abort", "error"):
        proxy.plan = always(reason)
        assert choice(ask(proxy))["finish_reason"] == reason
    proxy.plan = always("unequal lengths")
    found = choice(ask(proxy))
    assert len(found["token_ids"]) == 4 and len(found["logprobs"]["token_logprobs"]) == 3
    proxy.plan = always("no token ids")
    assert "token_ids" not in choice(ask(proxy))
    proxy.plan = always("no log-probs")
    assert choice(ask(proxy))["logprobs"] is None
    proxy.plan = always("empty")
    found = choice(ask(proxy))
    assert found["text"] == "" and found["token_ids"] == []


def test_answers_to_other_questions(proxy: Proxy) -> None:
    proxy.plan = always(None)
    right = {seed: choice(ask(proxy, seed=seed, max_tokens=30))["text"] for seed in (3, 4)}
    assert right[3] != right[4]
    proxy.plan = always("swapped")
    assert choice(ask(proxy, seed=3, max_tokens=30))["text"] == right[4]
    assert choice(ask(proxy, seed=4, max_tokens=30))["text"] == right[3]
    proxy.plan = always("same")
    assert len({choice(ask(proxy, seed=seed))["text"] for seed in range(4)}) == 1
    proxy.plan = always("no seed")
    assert len({choice(ask(proxy, seed=3, max_tokens=30))["text"] for _ in range(8)}) > 1
    proxy.plan = always("top_k 20")
    assert choice(ask(proxy, top_k=1))
    proxy.plan = always("drip")
    assert choice(ask(proxy, seed=3, max_tokens=30))["text"] == right[3]


def give_up(proxy: Proxy, when: Callable[[], bool], **fields: Any) -> None:
    """Ask, and close the connection without an answer."""

    async def asking() -> None:
        async with httpx.AsyncClient(timeout=None) as client:
            request = client.post(f"{proxy.url}/completions", json=ASKED | fields)
            task = asyncio.create_task(request)
            while not when():
                await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(asking())


def test_what_never_ends_ends_with_the_client(proxy: Proxy, server: Server) -> None:
    proxy.plan, before = always("endless"), proxy.dropped  # a drip before may count late
    with httpx.stream("POST", f"{proxy.url}/completions", json=ASKED) as answer:
        assert next(answer.iter_bytes()).strip() == b""
    until(lambda: proxy.dropped >= before + 1)
    proxy.plan, posts = always("hang"), proxy.posts
    give_up(proxy, lambda: proxy.posts > posts)
    until(lambda: proxy.dropped >= before + 2)
    proxy.plan = always(None)
    give_up(proxy, lambda: server.requests() == 1, max_tokens=8000, ignore_eos=True)
    until(lambda: proxy.dropped >= before + 3 and proxy.in_flight == 0)
    until(lambda: server.requests() == 0)


def test_a_closed_port_is_opened_again(proxy: Proxy) -> None:
    proxy.plan = always(None)
    proxy.close()
    with pytest.raises(httpx.ConnectError):
        ask(proxy)
    proxy.open()
    assert choice(ask(proxy))
    proxy.plan = at({proxy.posts: "refused"})
    with pytest.raises(httpx.TransportError):
        ask(proxy)

    def answers() -> bool:
        try:
            return bool(choice(ask(proxy)))
        except httpx.ConnectError:
            return False

    until(answers)


def test_a_plan_is_the_same_every_time() -> None:
    plan = spread(["a", "b"], times=50, every=3)
    hits = collections.Counter(plan(number) for number in range(400))
    assert hits["a"] == hits["b"] == 50 and plan(1) is None
    assert set(PASSING) < set(FAULTS)
