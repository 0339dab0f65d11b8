# bayes-at-n on vLLM's own image: CUDA, torch and vLLM come from there.
#   docker build -t bayes-at-n .
#   docker run --gpus all --ipc=host -v ~/.cache/huggingface:/root/.cache/huggingface -v "$PWD":/work \
#       bayes-at-n run model=qwen3-4b dataset=aime25
FROM vllm/vllm-openai:v0.32.0
COPY . /opt/bayes-at-n
RUN python3 -m pip install --no-cache-dir /opt/bayes-at-n
WORKDIR /work
ENTRYPOINT ["bayes-at-n"]
