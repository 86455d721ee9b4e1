# The service in a container, with the database in /tables: docker build -t exchangeable . && docker run -p 8080:8080 \
#   -v tables:/tables -v ./token:/run/token:ro exchangeable serve --host 0.0.0.0 --token-file /run/token
FROM python:3.11-slim
RUN useradd --create-home --uid 1000 exchangeable && mkdir /tables && chown exchangeable /tables
WORKDIR /package
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve,postgres]'
USER exchangeable
WORKDIR /tables
EXPOSE 8080
ENTRYPOINT ["exchangeable"]
CMD ["serve", "--host", "0.0.0.0", "--token-file", "/run/token"]
