# SPDX-License-Identifier: Apache-2.0
"""For scripts/lint: how long sentences are, and which phrases are hard to read. It reads Markdown, the comments of
headers, and what programs print."""
import ast
import os
import re
import sys

from lint_text import files, text_of

WARNED, MOST = 22, 30  # words
PHRASES = os.path.join(os.path.dirname(__file__), "phrases.txt")
BEGINS = r"[A-Z`\"'(“*_\[0-9]|(?:[a-d]\d?|nginx|inventoryd|libdlock|hiredis|libmicrohttpd)\b"  # a sentence
# Each claim counts for itself, also after a semicolon.
ENDS = re.compile(rf"(?<!\be\.g)(?<!\bi\.e)[.!?][)\"'”*_]*(?=\s+(?:{BEGINS})|\s*$)|;(?=\s)")
WORD = re.compile(r"[^\s]*\w[^\s]*")


def paragraphs_of_markdown(text):
    """(line, text) of each paragraph, item of a list, heading and cell."""
    fenced, number, lines, start = None, 0, [], 0

    def flush():
        nonlocal lines
        if lines:
            yield start, " ".join(lines)
        lines = []

    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if re.match(r"(```|~~~)", bare):
            fenced = None if fenced else bare
            yield from flush()
            continue
        if fenced:
            continue
        if not bare or bare.startswith(("<!--", "#", "![")) or re.match(r"</?\w", bare):
            yield from flush()
            if bare.startswith("#"):
                yield number, bare.lstrip("# ")
            continue
        if bare.startswith("|"):
            yield from flush()
            for cell in re.split(r"(?<!\\)\|", bare.strip("|")):
                yield number, cell.strip()
            continue
        if re.match(r"([-*+]|\d+[.)]) ", bare):
            yield from flush()
            bare = re.sub(r"^([-*+]|\d+[.)]) ", "", bare)
        if not lines:
            start = number
        lines.append(bare.lstrip("> "))
    yield from flush()


def plain(text):
    """Markdown as it is read: a link is its words."""
    text = re.sub(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)\s]*\)", r"\1", text)
    return re.sub(r"<[^>]+>", "", text)


COMMENT = re.compile(r"/\*(.*?)\*/|//([^\n]*)", re.DOTALL)
STRING = r'"((?:[^"\\\n]|\\.)*)"'
STRINGS = re.compile(rf"{STRING}(?:\s*(?:PRI\w+|[A-Z_]{{3,}})?\s*{STRING})*")


def paragraphs_of_comments(text):
    """Indented lines after an empty one are code; after a text they go on with it."""
    for match in COMMENT.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        lines, start, code = [], number, False
        for offset, line in enumerate((match[1] or match[2] or "").splitlines() + [""]):
            bare = line.strip().lstrip("*").strip()
            code = bool(re.match(r"\s*\*\s{3,}\S", line)) and (code or not lines)
            item = re.match(r"[-*] |[A-Z_]{2,}  +(?=\S)", bare)
            if lines and (not bare or item or code):
                yield start, " ".join(lines)
                lines = []
            if bare and not code:
                start = start if lines else number + offset
                lines.append(bare[item.end():] if item else bare)


def strings_of_c(text):
    text = COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    for match in STRINGS.finditer(text):
        whole = "".join(re.findall(STRING, match[0]))
        whole = whole.replace("\\n", "\n").replace('\\"', '"')
        number = text.count("\n", 0, match.start()) + 1
        for part in re.split(r"\n\s*\n|\n(?=\s{2,})", whole):
            if " " in part.strip() and not part.startswith("<"):  # that is SVG
                yield number, " ".join(part.split())


def strings_of_python(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 3:
            for part in re.split(r"\n\s*\n|\n(?=\s)", node.value):
                yield node.lineno, " ".join(part.split())


def usage_of_shell(text):
    for match in re.finditer(r"<<-?'?(USAGE)'?\n(.*?)\n\s*\1\n", text, re.DOTALL):
        number = text.count("\n", 0, match.start()) + 2
        for part in re.split(r"\n\s*\n|\n(?=  )", match[2]):
            yield number, " ".join(part.split())
            number += part.count("\n") + 1
    for match in re.finditer(r'^\s*(?:.*\|\| )?(?:say|fail)\s+"((?:[^"\\]|\\.)*)"', text, re.MULTILINE):
        yield text.count("\n", 0, match.start()) + 1, " ".join(match[1].split())


def paragraphs():
    """(name, line, text) of all that is read."""
    for name in files():
        if name.startswith(("tests/fuzz/corpus", "LICENSE")) or name.endswith("README.zh-CN.md"):
            continue
        ending = os.path.splitext(name)[1]
        text = text_of(name)
        if ending == ".md":
            for line, part in paragraphs_of_markdown(text):
                yield name, line, plain(part)
        elif ending == ".h":
            for line, part in paragraphs_of_comments(text):
                yield name, line, part
        if ending in (".c", ".h", ".def") and name.startswith(("lock/", "base/", "service/", "account/", "menu/", "tasks/", "audit/")):
            for line, part in strings_of_c(text):
                yield name, line, part
        if ending == ".py" and name.startswith(("flaws/", "scripts/")):
            for line, part in strings_of_python(text):
                yield name, line, part
        if name.startswith("scripts/") and ending in ("", ".sh"):
            for line, part in usage_of_shell(text):
                yield name, line, part


def sentences(text):
    begin = 0
    for match in ENDS.finditer(text):
        yield text[begin:match.end()].strip()
        begin = match.end()
    if text[begin:].strip():
        yield text[begin:].strip()


def words(sentence):
    return len(WORD.findall(sentence))


def phrases():
    """(pattern, what to say instead) of each line of the list."""
    with open(PHRASES, encoding="utf-8") as file:
        lines = [line.rstrip("\n").rsplit("  ", 1) for line in file if not line.startswith("#")]
    return [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in lines]


def main():
    """Prints each sentence that is too long, and each phrase that is listed. The last line counts the sentences that are
    long, and pass."""
    found, longer, listed = 0, 0, phrases()
    for name, line, part in paragraphs():
        for sentence in sentences(part):
            length = words(sentence)
            longer += MOST >= length > WARNED
            if length > MOST:
                found += 1
                print(f"{name}:{line}: {length} words; {MOST} are the most: {sentence}")
        prose = re.sub(r"`[^`]*`", "", part)
        for pattern, better in listed:
            phrase = pattern.search(prose)
            if phrase:
                found += 1
                print(f'{name}:{line}: "{phrase[0]}" is hard to read; say: {better}')
    print(f"{longer} sentences have more than {WARNED} words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
