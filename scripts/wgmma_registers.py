#!/usr/bin/env python3
"""Looks in machine code for registers of A that change while a warpgroup product still reads them.

usage: wgmma_registers.py CUOBJDUMP CUBIN...

PTX forbids it, and the assembler does it all the same where the source does not mention the registers again behind the wait
(prelude/wgmma.cuh, wgmma_operands). Results are then wrong by chance. Prints one line a file; exits with 1 if there is such a
register. CUBIN is what `kernel.bin` of a store entry holds, or what NVRTC gave.
"""
import re
import subprocess
import sys

NO_RESULT = {"STS", "STG", "ST", "STL", "STSM", "RED", "ATOMS", "BAR", "SYNCS", "HGMMA", "UTMALDG", "UTMASTG", "UBLKCP", "LDGSTS",
             "ISETP", "FSETP", "R2UR"}


def instructions(cuobjdump, cubin):
    text = subprocess.run([cuobjdump, "-sass", cubin], capture_output=True, text=True, check=True).stdout
    lines = (line for line in text.splitlines() if re.search(r"^\s+/\*[0-9a-f]{4,5}\*/", line))
    return [re.sub(r"/\*[0-9a-fx]+\*/", "", line).strip() for line in lines]


def written(line):
    """The registers that an instruction sets."""
    m = re.match(r"(?:@!?U?P\w+ )?([A-Z0-9_.]+)\s+R(\d+)\b", line)
    if not m or m[1].split(".")[0] in NO_RESULT:
        return set()
    wide = 4 if ".128" in m[1] or ("LDSM" in m[1] and ".4" in m[1]) else 2 if ".64" in m[1] or ".WIDE" in m[1] else 1
    return set(range(int(m[2]), int(m[2]) + wide))


def overwritten(lines, at, first):
    """Instructions behind product `at` that set a register from `first` on before that product has been waited for."""
    behind = 0 if "gsb0" in lines[at] else -1  # groups of products that were committed after it
    for line in lines[at + 1:]:
        behind += "HGMMA" in line and "gsb0" in line
        wait = re.search(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)", line)
        if wait and behind >= int(wait[1], 16):
            return
        if written(line) & set(range(first, first + 4)):
            yield line


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    failed = False
    for cubin in sys.argv[2:]:
        lines = instructions(sys.argv[1], cubin)
        products = [(i, int(m[1])) for i, line in enumerate(lines) if (m := re.search(r"HGMMA\.\S+ R\d+, R(\d+), gdesc", line))]
        bad = [(lines[i], line) for i, first in products for line in overwritten(lines, i, first)]
        print(f"{cubin}: {len(products)} products with A in registers, {len(bad)} instructions change one too early")
        for product, line in bad[:3]:
            print(f"    {product[:70]}  then  {line[:70]}")
        failed |= bool(bad)
    sys.exit(failed)


if __name__ == "__main__":
    main()
