"""Makes chat_templates.json with transformers: python tests/reference/chat_templates.py

For each template: a few conversations as `apply_chat_template` writes them, whole and to be continued. The templates are
those of models that many people train: ChatML as Qwen2.5 and SmolLM2 have it, and those of Llama 3, Mistral and Zephyr.
For one that marks what is said with `{% generation %}`, the marked parts are there, too.
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
        "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {{- 'tools' }}\n{%- else %}\n"
        "    {%- if messages[0]['role'] == 'system' %}\n"
        "        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}\n    {%- else %}\n"
        "        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}\n{%- for message in messages %}\n"
        '    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or '
        '(message.role == "assistant" and not message.tool_calls) %}\n'
        "        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
        '    {%- elif message.role == "assistant" %}\n        {{- \'<|im_start|>\' + message.role }}\n'
        "        {%- if message.content %}\n            {{- '\\n' + message.content }}\n        {%- endif %}\n"
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
CONVERSATIONS = {"one": ONE, "more": MORE, "system": [message("system", "Be brief.\n")] + MORE}


def written(template, messages, prompt, mask=False):
    texts, marked = render_jinja_template(
        conversations=[messages], chat_template=template, add_generation_prompt=prompt,
        return_assistant_tokens_mask=mask, **TOKENS
    )
    return texts[0], marked[0] if mask else []


def main():
    cases = []
    for name, template in TEMPLATES.items():
        for conversation, messages in CONVERSATIONS.items():
            case = {"template": name, "conversation": conversation, "messages": messages}
            try:
                case["text"], parts = written(template, messages, False, mask=name == "marked")
                case["prompt"], _ = written(template, messages[:-1], True)
                # Places are in characters.
                case["generation"] = [case["text"][begin:end] for begin, end in parts]
            except Exception as error:  # A template says itself why it refuses.
                case["refused"] = str(error)
            cases.append(case)
    out = {"tokens": TOKENS, "templates": TEMPLATES, "cases": cases}
    path = Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


main()
