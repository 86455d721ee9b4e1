# The service in a container, with its database in the volume /tables:
#   docker build -t exchangeable .
#   docker run -p 8080:8080 -v tables:/tables -v ./token:/run/token:ro exchangeable
# What follows the image's name replaces the last line: serve /tables/ratings.csv --host 0.0.0.0 --token-file /run/token
FROM python:3.11-slim

RUN useradd --create-home --uid 1000 exchangeable && mkdir /tables && chown exchangeable /tables
WORKDIR /package
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# PyTorch from its index for CPUs: the package index has one with gigabytes of CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" '.[serve,postgres,otel]' \
    && python -c "import torch; assert torch.version.cuda is None, torch.__version__"

USER exchangeable
WORKDIR /tables
VOLUME /tables
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["exchangeable"]
CMD ["serve", "--host", "0.0.0.0", "--token-file", "/run/token"]
