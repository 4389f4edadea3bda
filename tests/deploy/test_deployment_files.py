"""Image, compose file and manifests: valid by the published schemas, of one mind, closed, and free of secrets."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from check_jsonschema.builtin_schemas import get_builtin_schema

from simulator import __main__ as simulator
from tests.deploy.deployment import (
    DEPLOY,
    KUBERNETES,
    ROOT,
    UID,
    compose,
    containers,
    locust_options,
    manifests,
    pods,
    read,
)
from tokenswarm.scenario import load_scenario

DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
INSTRUCTIONS = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
FINAL = INSTRUCTIONS[max(i for i, line in enumerate(INSTRUCTIONS) if line.startswith("FROM")) :]


# schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["compose.yaml", "compose.headless.yaml"])
def test_compose_files_follow_the_specification(name: str) -> None:
    """The schema of the compose specification takes them, and would not take a misspelt key."""
    schema = get_builtin_schema("vendor.compose-spec")
    document = compose(name)
    jsonschema.validate(document, schema)
    document["services"]["master"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)


@pytest.mark.parametrize("version", ["1.29", "1.37"])
def test_manifests_follow_the_schemas_of_kubernetes(version: str) -> None:
    """Old and new clusters take every document strictly, and would not take a misspelt key."""
    documents = manifests()
    assert len(documents) == 7
    for document in documents.values():
        kubernetes_validate.validate(document, version, strict=True)
    job = documents["Job", "tokenswarm-worker"]
    job["spec"]["paralelism"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, version, strict=True)


# command lines ---------------------------------------------------------------------------------------------------


def _interpolated(words: list[str]) -> list[str]:
    return [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in words]


def test_every_command_is_one_that_locust_takes() -> None:
    """Masters are masters that wait for as many workers as there are; workers find the master by its real name."""
    services = compose()["services"]
    headless = compose("compose.headless.yaml")["services"]["master"]
    job, workers = containers()["tokenswarm-master"], containers()["tokenswarm-worker"]
    commands = [services["master"]["command"], headless["command"], job["args"]]
    commands += [services["worker"]["command"], workers["args"]]
    parsed, _ = locust_options(*map(_interpolated, commands))
    page, waiting, in_job, in_compose, in_cluster = parsed
    assert [options["master"] for options in parsed] == [True] * 3 + [False] * 2
    assert [options["worker"] for options in parsed] == [False] * 3 + [True] * 2
    assert [page["headless"], waiting["headless"], in_job["headless"]] == [False, True, True]
    replicas = _interpolated([services["worker"]["deploy"]["replicas"]])[0]
    assert waiting["expect_workers"] == int(replicas)
    spec = manifests()["Job", "tokenswarm-worker"]["spec"]
    assert in_job["expect_workers"] == spec["parallelism"] == spec["completions"]
    assert in_compose["master_host"] in services
    assert ("Service", in_cluster["master_host"]) in manifests()
    assert [in_compose["exit_code_on_error"], in_cluster["exit_code_on_error"]] == [0, 0]


def test_every_variable_is_one_that_somebody_reads() -> None:
    """What compose file, Job and image set in the environment are options of Locust, ours, keys, or Python's own."""
    _, read_by_locust = locust_options()
    services = compose()["services"]
    names = set(services["master"]["environment"]) | set(services["worker"]["environment"])
    names |= {entry["name"] for entry in containers()["tokenswarm-master"]["env"]}
    (setting,) = [line for line in FINAL if line.startswith("ENV ")]
    names |= set(re.findall(r"(\w+)=", setting))
    ours = {name for name in names if name.startswith(("LOCUST_", "TOKENSWARM_"))}
    assert ours - read_by_locust == set()
    assert len(ours) > 4
    others = {"OPENAI_API_KEY", "HF_TOKEN", "PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    assert names - ours == others


def test_the_simulated_engine_takes_its_options() -> None:
    """It listens where the master looks for it."""
    services = compose()["services"]
    assert services["simulator"]["entrypoint"] == ["python", "-m", "simulator"]
    options = simulator._arguments().parse_args(_interpolated(services["simulator"]["command"]))
    (url,) = _interpolated([services["master"]["environment"]["LOCUST_HOST"]])
    assert url == f"http://simulator:{options.port}"
    assert options.host == "0.0.0.0"


def test_probes_ask_about_ports_that_are_used() -> None:
    """5557 for master and workers, and the simulator's own port."""
    services = compose()["services"]
    probes = {name: service["healthcheck"]["test"][1:] for name, service in services.items()}
    assert probes == {
        "master": ["healthy", "listens", "5557"],
        "worker": ["healthy", "connected", "5557"],
        "simulator": ["healthy", "listens", "8000"],
    }
    job = containers()["tokenswarm-master"]
    assert job["startupProbe"]["exec"]["command"] == probes["master"]
    (parsed,), _ = locust_options(["--master"])
    assert parsed["master_bind_port"] == job["ports"][0]["containerPort"] == 5557


def test_the_probe_tells_listening_and_connected_ports() -> None:
    """It sees what is there and nothing else, and connects to nothing itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert (_healthy("listens", port), _healthy("connected", port)) == (0, 1)
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, (_, from_port) = server.accept()
            with accepted:
                assert from_port == client.getsockname()[1]
                assert (_healthy("connected", port), _healthy("listens", from_port)) == (0, 1)
    assert (_healthy("listens", port), _healthy("what", port)) == (1, 2)


def _healthy(question: str, port: int) -> int:
    command = ["sh", str(DEPLOY / "healthy"), question, str(port)]
    return subprocess.run(command, timeout=10, check=False, capture_output=True).returncode


# what is closed ---------------------------------------------------------------------------------------------------


def test_nothing_but_the_page_is_published_and_that_on_loopback() -> None:
    """Locust's ports ask nobody for a password."""
    published = {name: service["ports"] for name, service in compose()["services"].items() if service.get("ports")}
    assert published == {"master": ["127.0.0.1:8089:8089"]}
    assert compose("compose.headless.yaml")["services"]["master"]["ports"] == []


def test_only_workers_reach_the_master() -> None:
    """The policies and the Service select the pods that there are; nobody reaches a worker."""
    documents = manifests()
    labels = {name: pod["metadata"].get("labels") for name, pod in pods().items()}
    policy = documents["NetworkPolicy", "tokenswarm-master"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels["tokenswarm-master"]
    assert policy["policyTypes"] == ["Ingress"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": labels["tokenswarm-worker"]}}]
    assert rule["ports"] == [{"port": 5557, "protocol": "TCP"}]
    workers = documents["NetworkPolicy", "tokenswarm-worker"]["spec"]
    assert workers["podSelector"]["matchLabels"] == labels["tokenswarm-worker"]
    assert "ingress" not in workers
    service = documents["Service", "tokenswarm-master"]["spec"]
    assert service["selector"] == labels["tokenswarm-master"]
    assert service["ports"][0]["targetPort"] == containers()["tokenswarm-master"]["ports"][0]["name"]


def test_nothing_runs_as_root_or_writes_outside_of_its_volumes() -> None:
    """A numeric uid in image and pods, no capabilities, a read-only root, /tmp to write to."""
    assert f"USER {UID}:0" in FINAL
    for name, pod in pods().items():
        security, container = pod["spec"]["securityContext"], containers()[name]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, UID), name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["spec"]["automountServiceAccountToken"] is False
    for service in compose()["services"].values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["tmpfs"][0].startswith("/tmp:")
        assert "no-new-privileges:true" in service["security_opt"]


def test_volumes_that_are_mounted_exist() -> None:
    """In pods and in the compose file; the master's results are where the image puts them, scenarios are read-only."""
    for name, pod in pods().items():
        there = {volume["name"] for volume in pod["spec"]["volumes"]}
        assert {mount["name"] for mount in containers()[name]["volumeMounts"]} == there
    volumes = [volume for pod in pods().values() for volume in pod["spec"]["volumes"]]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
    assert claims == ["tokenswarm-results"] * 2
    assert ("PersistentVolumeClaim", "tokenswarm-results") in manifests()
    document = compose()
    assert "results:/results" in document["services"]["master"]["volumes"]
    assert "results" in document["volumes"]
    assert "TOKENSWARM_RESULTS=/results" in " ".join(FINAL)
    for name in ("master", "worker"):
        assert any(volume.endswith(":/scenarios:ro") for volume in document["services"][name]["volumes"])


def test_a_worker_has_one_core_and_comes_back() -> None:
    """Requests equal limits in whole cores; a killed one starts again; the run itself is never repeated."""
    documents = manifests()
    resources = containers()["tokenswarm-worker"]["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"] == "1"
    assert pods()["tokenswarm-worker"]["spec"]["restartPolicy"] == "OnFailure"
    assert compose()["services"]["worker"]["restart"] == "on-failure"
    assert documents["Job", "tokenswarm-worker"]["spec"]["completionMode"] == "Indexed"
    assert documents["Job", "tokenswarm-master"]["spec"]["backoffLimit"] == 0
    assert pods()["tokenswarm-master"]["spec"]["restartPolicy"] == "Never"


# secrets and scenarios --------------------------------------------------------------------------------------------


def test_no_secret_stands_in_a_file() -> None:
    """Keys come from the environment, an optional Secret or a file that is not here."""
    keys: dict[str, Any] = compose()["x-keys"]
    assert set(keys.values()) == {None}  # handed on from the shell
    assert compose()["secrets"]["api_key"] == {"file": "${API_KEY_FILE:-/dev/null}"}
    for name in ("tokenswarm-master", "tokenswarm-worker"):
        assert containers()[name]["envFrom"] == [{"secretRef": {"name": "tokenswarm-keys", "optional": True}}]
    assert not any(kind == "Secret" for kind, _ in manifests())
    texts = [path.read_text(encoding="utf-8") for path in DEPLOY.rglob("*") if path.is_file()]
    assert [text for text in texts if re.search(r"sk-\w{6}|BEGIN [A-Z ]*PRIVATE KEY|[Bb]earer \w{8}", text)] == []


def test_scenarios_are_good() -> None:
    """The ConfigMap's and the compose file's default are scenarios with levels."""
    (kustomization,) = read(KUBERNETES / "kustomization.yaml")
    (generator,) = kustomization["configMapGenerator"]
    assert generator["name"] == pods()["tokenswarm-worker"]["spec"]["volumes"][0]["configMap"]["name"]
    environment = {entry["name"]: entry["value"] for entry in containers()["tokenswarm-master"]["env"]}
    (file,) = generator["files"]
    assert environment["TOKENSWARM_SCENARIO"] == f"/scenarios/{file}"
    assert load_scenario(str(KUBERNETES / file)).load is not None
    (default,) = _interpolated([compose()["services"]["master"]["environment"]["TOKENSWARM_SCENARIO"]])
    assert load_scenario(str(ROOT / default.lstrip("/"))).load is not None


def test_the_image_has_all_that_is_copied_and_no_compiler() -> None:
    """What the Dockerfile copies exists and is let through by .dockerignore; the last stage only copies."""
    copied = [line.split()[1:-1] for line in INSTRUCTIONS if line.startswith("COPY") and "--from" not in line]
    sources = [source for line in copied for source in line]
    assert len(sources) > 5
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed
    assert "*" in allowed
    assert [line for line in FINAL if line.startswith("RUN") and re.search("apt|pip|gcc", line)] == []
    assert "--only-binary=:all:" in DOCKERFILE
    assert 'ENTRYPOINT ["locust"]' in FINAL
