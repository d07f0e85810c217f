"""Asks a server by LiteLLM: python litellm_package.py URL KEY. Fails if an answer is not as it should be."""

import asyncio
import importlib.metadata
import sys

import litellm
import openai

URL, KEY = sys.argv[1:]
NAME = "processes"
PROMPT = "ba ke li mo nu ra se ti vo zu pla gre"
CHAT = [{"role": "user", "content": "ba ke li"}]

litellm.suppress_debug_info = True
SERVER = {"api_base": URL, "api_key": KEY, "num_retries": 0, "max_retries": 0}
direct = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)


def chat(**fields):
    fields = {"model": f"openai/{NAME}", "messages": CHAT, "max_tokens": 12, "temperature": 0, **SERVER, **fields}
    return litellm.completion(**fields)


def chats():
    known = direct.chat.completions.create(model=NAME, messages=CHAT, max_tokens=12, temperature=0)
    answer = chat()
    choice = answer.choices[0]
    assert choice.message.content == known.choices[0].message.content and choice.finish_reason == "length", answer
    assert answer.usage.completion_tokens == 12 and answer.usage.prompt_tokens == known.usage.prompt_tokens, answer
    pieces = list(chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    assert text == choice.message.content and pieces[-1].usage.completion_tokens == 12, pieces
    # Fields that are this server's own go through, in both directions.
    for forced in (chat(path=2), chat(model=f"openai/{NAME}/path-2")):
        assert forced.choices[0].provider_specific_fields["x_pathswarm"]["path"] == 2, forced
    drawn = [chat(temperature=1, seed=seed).choices[0].message.content for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2], drawn
    scored = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(scored) == 12 and len(scored[0].top_logprobs) == 2, scored


async def at_once():
    asked = {"model": f"openai/{NAME}", "messages": CHAT, "max_tokens": 12, "temperature": 0, **SERVER}
    answers = await asyncio.gather(*(litellm.acompletion(**asked) for _ in range(4)))
    assert {answer.choices[0].message.content for answer in answers} == {chat().choices[0].message.content}, answers


def completions():
    known = direct.completions.create(model=NAME, prompt=PROMPT, max_tokens=12, temperature=0, logprobs=2).choices[0]
    for model in (f"openai/{NAME}", f"text-completion-openai/{NAME}"):
        asked = {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, **SERVER}
        choice = litellm.text_completion(logprobs=2, **asked).choices[0]
        assert choice.text == known.text and choice.finish_reason == "length", choice
        assert choice.logprobs.token_logprobs == known.logprobs.token_logprobs, choice
        pieces = litellm.text_completion(stream=True, **asked)
        assert "".join(piece.choices[0].text or "" for piece in pieces) == known.text


def embeddings():
    known = direct.embeddings.create(model=NAME, input=[PROMPT, "ba"]).data
    found = litellm.embedding(model=f"openai/{NAME}", input=[PROMPT, "ba"], **SERVER).data
    assert len(found) == 2 and len(found[0]["embedding"]) == 32, found
    for one, other in zip(found, known):
        assert all(abs(a - b) < 1e-5 for a, b in zip(one["embedding"], other.embedding)), (one, other)


def errors():
    def fails(kind, message, **fields):
        try:
            chat(**fields)
        except kind as error:
            assert message in str(error), error
            return
        raise AssertionError(f"{fields} is answered")

    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    fails(litellm.BadRequestError, "temperature is 9; give a number from 0 to 2", temperature=9)
    fails(litellm.BadRequestError, "calls no tools", tools=[tool])
    fails(litellm.NotFoundError, "does not exist", model="openai/gpt-4o")
    fails(litellm.AuthenticationError, "API key", api_key="sk-two")
    # Without a key in the environment, LiteLLM asks nobody, and calls that an error of the server.
    fails(litellm.InternalServerError, "OPENAI_API_KEY", api_key=None)


chats()
asyncio.run(at_once())
completions()
embeddings()
errors()
print("as by litellm", importlib.metadata.version("litellm"))
