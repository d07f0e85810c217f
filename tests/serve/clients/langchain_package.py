"""Asks a server by LangChain: python langchain_package.py URL KEY VOCABULARY. Fails if an answer is not as it should be.

VOCABULARY is a folder in which tiktoken finds the vocabulary `cl100k_base`, which it would download otherwise.
"""

import asyncio
import importlib.metadata
import os
import sys

import openai
import requests
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

URL, KEY, VOCABULARY = sys.argv[1:]
NAME = "processes"
PROMPT = "ba ke li mo nu ra se ti vo zu pla gre"

SERVER = {"model": NAME, "base_url": URL, "api_key": KEY, "max_retries": 0}
direct = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0)
chat = ChatOpenAI(temperature=0, max_tokens=12, **SERVER)
text = OpenAI(temperature=0, max_tokens=12, **SERVER)


def fails(kind, message, ask):
    try:
        ask()
    except kind as error:
        assert message in str(error), error
        return
    raise AssertionError(f"answered instead of: {message}")


def chats():
    messages = [{"role": "system", "content": "mo"}, {"role": "user", "content": PROMPT}]
    known = direct.chat.completions.create(model=NAME, messages=messages, max_tokens=12, temperature=0)
    asked = [("system", "mo"), ("user", PROMPT)]
    answer = chat.invoke(asked)
    assert answer.content == known.choices[0].message.content, answer
    assert answer.response_metadata["finish_reason"] == "length", answer
    assert answer.usage_metadata["output_tokens"] == 12, answer
    assert "".join(piece.content for piece in chat.stream(asked)) == answer.content
    *_, last = chat.stream(asked, stream_usage=True)
    counted = [piece.usage_metadata for piece in chat.stream(asked, stream_usage=True) if piece.usage_metadata]
    assert counted == [answer.usage_metadata], (counted, last)
    forced = ChatOpenAI(max_tokens=4, extra_body={"path": 2}, logprobs=True, **SERVER).invoke(asked)
    assert len(forced.response_metadata["logprobs"]["content"]) == 4, forced
    named = ChatOpenAI(temperature=0, max_tokens=12, **{**SERVER, "model": f"{NAME}/path-2"}).invoke(asked)
    assert named.content == chat.invoke(asked, extra_body={"path": 2}).content, named


async def at_once():
    prompts = ["ba", "ke li", PROMPT, "ba"]
    alone = [chat.invoke(prompt).content for prompt in prompts]
    together = await asyncio.gather(*(chat.ainvoke(prompt) for prompt in prompts))
    assert [answer.content for answer in together] == alone, (alone, together)
    assert "".join([piece.content async for piece in chat.astream("ba")]) == alone[0]
    assert [answer.content for answer in await chat.abatch(prompts)] == alone


def completions():
    known = direct.completions.create(model=NAME, prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text
    assert text.invoke(PROMPT) == known
    assert "".join(text.stream(PROMPT)) == known
    assert asyncio.run(text.ainvoke(PROMPT)) == known
    # Several prompts are one request.
    several = text.generate([PROMPT, "ba"])
    assert several.generations[0][0].text == known and several.llm_output["token_usage"]["completion_tokens"] == 24


def embeddings():
    known = [one.embedding for one in direct.embeddings.create(model=NAME, input=[PROMPT, "ba"]).data]
    close = lambda one, other: all(abs(a - b) < 1e-5 for a, b in zip(one, other, strict=True))
    plain = OpenAIEmbeddings(check_embedding_ctx_length=False, **SERVER)
    assert all(map(close, plain.embed_documents([PROMPT, "ba"]), known))
    assert close(plain.embed_query("ba"), known[1])
    assert close(asyncio.run(plain.aembed_query("ba")), known[1])
    # By default it sends the token ids of OpenAI's own models, for which it downloads a vocabulary.
    unlike = OpenAIEmbeddings(**SERVER)
    fails(requests.exceptions.ConnectionError, "cl100k_base", lambda: unlike.embed_query("Once upon a time"))
    os.environ["TIKTOKEN_CACHE_DIR"] = VOCABULARY
    said = "is not in the vocabulary, whose ids are 0 to 319; give ids of this model's own tokenizer, or the text itself"
    fails(openai.BadRequestError, said, lambda: unlike.embed_query("Once upon a time"))
    # An id that both have is another text here, which no server can know.
    assert close(unlike.embed_query("!"), direct.embeddings.create(model=NAME, input=[0]).data[0].embedding)
    assert not close(unlike.embed_query("!"), plain.embed_query("!"))


def errors():
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    fails(openai.BadRequestError, "calls no tools", lambda: chat.bind_tools([tool]).invoke("ba"))
    form = {"title": "Answer", "type": "object", "properties": {"word": {"type": "string"}}}
    written = chat.with_structured_output(form)
    fails(openai.BadRequestError, "response_format is not supported", lambda: written.invoke("ba"))
    fails(openai.BadRequestError, "temperature is 9", lambda: ChatOpenAI(temperature=9, **SERVER).invoke("ba"))
    wrong = {**SERVER, "api_key": "sk-two"}
    fails(openai.AuthenticationError, "API key", lambda: ChatOpenAI(**wrong).invoke("ba"))
    fails(openai.AuthenticationError, "API key", lambda: OpenAI(**wrong).invoke("ba"))
    unknown = {**SERVER, "model": "gpt-4o"}
    fails(openai.NotFoundError, "does not exist", lambda: ChatOpenAI(**unknown).invoke("ba"))
    responses = ChatOpenAI(use_responses_api=True, **SERVER)
    fails(openai.NotFoundError, "there is nothing at this URL", lambda: responses.invoke("ba"))
    # Without a key in the environment, LangChain asks nobody.
    without = {name: value for name, value in SERVER.items() if name != "api_key"}
    fails(openai.OpenAIError, "OPENAI_API_KEY", lambda: ChatOpenAI(**without).invoke("ba"))


chats()
asyncio.run(at_once())
completions()
embeddings()
errors()
print("as by langchain-openai", importlib.metadata.version("langchain-openai"))
