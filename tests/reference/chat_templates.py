"""Makes chat_templates.json with transformers: python tests/reference/chat_templates.py

For each template: a few conversations as `apply_chat_template` writes them, whole and to be continued. The templates are
those of models that many people train: ChatML as Qwen2.5 and SmolLM2 have it, and those of Llama 3, Mistral and Zephyr.
For one that marks what is said with `{% generation %}`, the marked parts are there, too. Conversations with tools are
written with the parts of the templates of Qwen2.5, Qwen3 and Llama 3.1 for them, without their fixed instructions.
"""

import json
from pathlib import Path

from transformers.utils.chat_template_utils import render_jinja_template

TEMPLATES = {
    "chatml": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
        "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "smollm2": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "qwen2.5": (
        "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n"
        "    {%- if messages[0]['role'] == 'system' %}\n        {{- messages[0]['content'] + '\\n\\n' }}\n    {%- endif %}\n"
        "    {{- '# Tools\\n<tools>' }}\n    {%- for tool in tools %}\n        {{- '\\n' }}\n        {{- tool | tojson }}\n"
        "    {%- endfor %}\n    {{- '\\n</tools><|im_end|>\\n' }}\n{%- else %}\n"
        "    {%- if messages[0]['role'] == 'system' %}\n"
        "        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n    {%- else %}\n"
        "        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}\n{%- for message in messages %}\n"
        '    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or '
        '(message.role == "assistant" and not message.tool_calls) %}\n'
        "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
        '    {%- elif message.role == "assistant" %}\n        {{- \'<|im_start|>\' + message.role }}\n'
        "        {%- if message.content %}\n            {{- '\\n' + message.content }}\n        {%- endif %}\n"
        "        {%- for tool_call in message.tool_calls %}\n"
        "            {%- if tool_call.function is defined %}\n                {%- set tool_call = tool_call.function %}\n"
        "            {%- endif %}\n            {{- '\\n<tool_call>\\n{\"name\": \"' }}\n            {{- tool_call.name }}\n"
        "            {{- '\", \"arguments\": ' }}\n            {{- tool_call.arguments | tojson }}\n"
        "            {{- '}\\n</tool_call>' }}\n        {%- endfor %}\n"
        "        {{- '<|im_end|>\\n' }}\n"
        '    {%- elif message.role == "tool" %}\n'
        '        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}\n'
        "            {{- '<|im_start|>user' }}\n        {%- endif %}\n"
        "        {{- '\\n<tool_response>\\n' }}\n        {{- message.content }}\n"
        "        {{- '\\n</tool_response>' }}\n"
        '        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}\n'
        "            {{- '<|im_end|>\\n' }}\n        {%- endif %}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    # What was thought is written only behind the last question.
    "qwen3": r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}""",
    "llama-3.1": r"""{{- bos_token }}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if messages[0]['role'] == 'system' %}
    {{- messages[0]['content']|trim }}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    "llama-3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
        "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 "
        "%}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "mistral": (
        "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
        "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
    ),
    "zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
        "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
        "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n"
        "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
    ),
    "marked": (
        "{%- for message in messages %}\n    {%- if message.role == 'assistant' %}\n"
        "        {{- '<|im_start|>assistant\\n' }}\n        {%- generation %}\n"
        "        {{- message.content + '<|im_end|>' }}\n        {%- endgeneration %}\n        {{- '\\n' }}\n"
        "    {%- else %}\n        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
        "    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n"
        "    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


def message(role, content):
    return {"role": role, "content": content}


ONE = [message("user", " What is 2+2? "), message("assistant", "It's 4.\n")]
MORE = ONE + [message("user", "Und auf Deutsch: \"zwei\" & <drei>?"), message("assistant", "Fünf 🦀")]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What's the weather <now> in a \"city\"?",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "at": {"type": "number", "default": 0.5}},
                "required": ["city"],
            },
        },
    }
]


def call(name, arguments):
    return {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}


CALLED = [
    message("user", "Wie ist es in Köln & Bonn?"),
    {"role": "assistant", "content": None, "tool_calls": [call("weather", {"city": "Köln", "at": 1e16, "b": [True, None]})]},
    {"role": "tool", "name": "weather", "tool_call_id": "1", "content": "{\"sky\": \"<blue>\"}"},
    message("assistant", "Blau."),
    message("user", "Danke"),
    message("assistant", "Gern."),
]
TWICE = CALLED[:1] + [
    {
        "role": "assistant", "content": "Let me see.",
        "tool_calls": [call("weather", {"city": "Köln"}), call("weather", {"city": "Bonn", "at": 2})],
    },
    message("tool", "blue"), message("tool", "grey"),
] + CALLED[3:]
# With what was thought.
THOUGHT = [
    message("user", "2+2?"), message("assistant", "<think>\nTwo and two.\n</think>\n\n4"), message("user", "Sure?"),
    {"role": "assistant", "content": "Yes.", "reasoning_content": "Again: 4."},
]
WITH_TOOLS = {"called": CALLED, "twice": TWICE}

CONVERSATIONS = {"one": ONE, "more": MORE, "system": [message("system", "Be brief.\n")] + MORE}


def written(template, messages, prompt, tools=None, mask=False):
    texts, marked = render_jinja_template(
        conversations=[messages], chat_template=template, add_generation_prompt=prompt, tools=tools,
        return_assistant_tokens_mask=mask, **TOKENS
    )
    return texts[0], marked[0] if mask else []


def wanted():
    """Templates, and conversations with the tools that each has."""
    for name in TEMPLATES:
        for conversation, messages in CONVERSATIONS.items():
            yield name, conversation, messages, None
    for name in ["qwen2.5", "qwen3", "llama-3.1"]:
        for conversation, messages in WITH_TOOLS.items():
            yield name, conversation, messages, TOOLS
        yield name, "thought", THOUGHT, None


def main():
    cases = []
    for name, conversation, messages, tools in wanted():
        template = TEMPLATES[name]
        case = {"template": name, "conversation": conversation, "messages": messages, "tools": tools}
        try:
            case["text"], parts = written(template, messages, False, tools, mask=name == "marked")
            case["prompt"], _ = written(template, messages[:-1], True, tools)
            # Places are in characters.
            case["generation"] = [case["text"][begin:end] for begin, end in parts]
        except Exception as error:  # A template says itself why it refuses.
            case["refused"] = str(error)
        cases.append(case)
    out = {"tokens": TOKENS, "templates": TEMPLATES, "cases": cases}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


main()
