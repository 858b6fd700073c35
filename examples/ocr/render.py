#!/usr/bin/python3
"""Renders the pictures of examples/ocr/pictures and writes expected.tsv (file, tab, text).

The pictures are committed; this is only needed to change them. Needs python3-pil, python3-numpy, fonts-dejavu-core,
fonts-liberation and fonts-noto-cjk. Each picture is one line of text with a fixed seed, so rendering is repeatable.
"""
import pathlib

import numpy
from PIL import Image, ImageDraw, ImageFilter, ImageFont

HERE = pathlib.Path(__file__).resolve().parent
FONTS = {
    "sans": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "sans-bold": "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf",
    "mono": "/usr/share/fonts/truetype/liberation/LiberationMono-Regular.ttf",
    "narrow": "/usr/share/fonts/truetype/liberation/LiberationSansNarrow-Regular.ttf",
    "times": "/usr/share/fonts/truetype/liberation/LiberationSerif-Regular.ttf",
    "times-italic": "/usr/share/fonts/truetype/liberation/LiberationSerif-Italic.ttf",
    "cjk-sans": "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "cjk-bold": "/usr/share/fonts/opentype/noto/NotoSansCJK-Bold.ttc",
    "cjk-serif": "/usr/share/fonts/opentype/noto/NotoSerifCJK-Regular.ttc",
}
SIMPLIFIED = 2  # the face of a Noto CJK collection with mainland China's glyphs

# name, text, font, size in pixels, then what is done to the picture.
PICTURES = [
    ("01-plain", "Tessera compiles transformers", "sans", 32, {}),
    ("02-serif", "The quick brown fox jumps over the lazy dog", "times", 40, {}),
    ("03-invoice", "Invoice No. 2024-0731, total $1,249.50", "mono", 24, {"paper": (250, 244, 230)}),
    ("04-inverted", "WARNING: HIGH VOLTAGE", "sans-bold", 30, {"ink": (255, 236, 140), "paper": (28, 30, 60)}),
    ("05-noise", "Attention is all you need", "sans", 34, {"noise": 34}),
    ("06-blur", "memory planned before it runs", "times", 48, {"blur": 2.0}),
    ("07-faint", "contrast is very low here", "sans", 30, {"ink": (168, 168, 172), "paper": (205, 205, 208)}),
    ("08-tilted", "slightly rotated line 42", "narrow", 44, {"angle": 2.0}),
    ("09-italic", "Results may vary (see page 17)", "times-italic", 36, {"noise": 12, "blur": 0.6}),
    ("10-chinese", "人工智能编译器运行在普通电脑上", "cjk-sans", 36, {}),
    ("11-poem", "床前明月光，疑是地上霜", "cjk-serif", 44, {"noise": 18, "paper": (240, 232, 214)}),
    ("12-mixed", "版本2.5发布于2024年8月15日", "cjk-bold", 28, {"ink": (150, 20, 30)}),
    ("13-tiny", "small print: 14 px", "sans", 14, {}),
]


def render(text, font, size, seed, ink=(20, 20, 24), paper=(255, 255, 255), noise=0, blur=0, angle=0):
    """One line of text: `noise` is the standard deviation in grey levels, `blur` a radius in pixels, `angle` degrees."""
    face = ImageFont.truetype(FONTS[font], size, index=SIMPLIFIED if font.startswith("cjk") else 0)
    left, top, right, bottom = face.getbbox(text)
    margin = max(3, size // 5)
    picture = Image.new("RGB", (right - left + 2 * margin, bottom - top + 2 * margin), paper)
    ImageDraw.Draw(picture).text((margin - left, margin - top), text, font=face, fill=ink)
    if angle:
        picture = picture.rotate(angle, Image.BICUBIC, expand=True, fillcolor=paper)
    if blur:
        picture = picture.filter(ImageFilter.GaussianBlur(blur))
    if noise:
        pixels = numpy.asarray(picture, numpy.float32)
        grain = numpy.random.default_rng(seed).normal(0, noise, pixels.shape[:2])[..., None]
        picture = Image.fromarray(numpy.clip(pixels + grain, 0, 255).astype(numpy.uint8))
    return picture


def main():
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    lines = []
    for seed, (name, text, font, size, how) in enumerate(PICTURES):
        render(text, font, size, seed, **how).save(folder / f"{name}.png", optimize=True)
        lines.append(f"{name}.png\t{text}\n")
    (HERE / "expected.tsv").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
