"""Languages besides Python: how a program of each is built and started where they are installed."""

from typing import NamedTuple


class Language(NamedTuple):
    """A language: names of its fenced blocks, the file of a program, and two commands."""

    fences: tuple[str, ...]
    file: str
    build: str  # "": none
    run: str


LANGUAGES = {
    "c": Language(("c",), "main.c", "gcc -O2 -o main main.c -lm", "./main"),
    "cpp": Language(
        ("cpp", "c++", "cxx", "cc"), "main.cpp", "g++ -O2 -std=c++17 -o main main.cpp", "./main"
    ),
    "go": Language(("go", "golang"), "main.go", "go build -o main main.go", "./main"),
    "java": Language(
        ("java",), "Main.java", "javac Main.java", "java -Xss64m -XX:+UseSerialGC Main"
    ),
    "javascript": Language(("javascript", "js", "node"), "main.js", "", "node main.js"),
    "rust": Language(("rust", "rs"), "main.rs", "rustc -O -o main main.rs", "./main"),
}
NAMES = ("python", *LANGUAGES)
