"""Asks a server by the official `openai` package: python openai_package.py URL KEY. Fails if an answer is not as it should be.
"""

import asyncio
import math
import sys

import openai

URL, KEY = sys.argv[1:]
MODEL = "processes"
PROMPT = "ba ke li mo nu ra se ti vo zu pla gre"
CHAT = [{"role": "user", "content": "ba ke li"}]

client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)


def models():
    names = [model.id for model in client.models.list()]
    assert names[0] == MODEL and f"{MODEL}/path-3" in names, names
    assert client.models.retrieve(f"{MODEL}/path-3").id == f"{MODEL}/path-3"


def completions():
    whole = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=20, temperature=0, logprobs=3)
    choice = whole.choices[0]
    assert whole.usage.completion_tokens == 20 and choice.finish_reason == "length", whole
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == 20
    for token, logprob, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert math.isclose(max(top.values()), logprob) and token in top, (token, top)
    pieces = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=20, temperature=0, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == choice.text
    forced = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=5, extra_body={"path": 2})
    assert forced.choices[0].x_pathswarm["path"] == 2, forced


def chats():
    whole = client.chat.completions.create(
        model=MODEL, messages=CHAT, max_completion_tokens=12, temperature=0, logprobs=True, top_logprobs=2, seed=1
    )
    choice = whole.choices[0]
    assert choice.message.role == "assistant" and choice.finish_reason == "length", whole
    assert len(choice.logprobs.content) == 12 and len(choice.logprobs.content[0].top_logprobs) == 2
    text, usage = "", None
    for piece in client.chat.completions.create(
        model=MODEL,
        messages=CHAT,
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = piece.usage or usage
        text += "".join(choice.delta.content or "" for choice in piece.choices)
    assert text == choice.message.content, (text, choice.message.content)
    assert usage == whole.usage, (usage, whole.usage)


def embeddings():
    # The package asks for base64 unless it is told otherwise.
    packed = client.embeddings.create(model=MODEL, input=[PROMPT, "ba"])
    plain = client.embeddings.create(model=MODEL, input=[PROMPT, "ba"], encoding_format="float")
    for one, other in zip(packed.data, plain.data):
        assert len(one.embedding) == 32
        assert all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(one.embedding, other.embedding))


def errors():
    def fails(kind, message, **fields):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": CHAT, "max_tokens": 2, **fields})
        except kind as error:
            assert message in str(error), error
            return
        raise AssertionError(f"{fields} is answered")

    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    fails(openai.BadRequestError, "calls no tools", tools=[tool])
    fails(openai.BadRequestError, "from 0 to 2", temperature=9)
    fails(openai.NotFoundError, "does not exist", model="gpt-4o")
    try:
        openai.OpenAI(base_url=URL, api_key="sk-two", max_retries=0).models.list()
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key", error
    else:
        raise AssertionError("a wrong key is answered")


async def at_once():
    several = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0)

    async def one(seed):
        pieces = await several.chat.completions.create(
            model=MODEL, messages=CHAT, max_tokens=30, seed=seed, stream=True
        )
        return "".join([piece.choices[0].delta.content or "" async for piece in pieces])

    alone = [await one(seed) for seed in range(4)]
    together = await asyncio.gather(*(one(seed) for seed in range(4)))
    assert alone == together, (alone, together)
    assert len(set(alone)) == 4, alone

    # A client that goes stops the work, and its place is free.
    pieces = await several.completions.create(model=MODEL, prompt=PROMPT, max_tokens=4000, stream=True)
    async for _ in pieces:
        break
    await pieces.close()


models()
completions()
chats()
embeddings()
errors()
asyncio.run(at_once())
print("as by openai", openai.__version__)
