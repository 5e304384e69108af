"""`python -m chaos_gpu`: the same as `chaos-gpu`."""

import sys

from chaos_gpu.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
