"""The container image: a node and a cluster's node are made in it, where something can build it."""

import subprocess

import pytest
from harness import ROOT, WEIR_BIN

TAG = "weir-test:latest"
NOTHING_BUILDS = 3


@pytest.fixture(scope="module")
def image():
    """The builder, which also runs the image."""
    made = subprocess.run([ROOT / "scripts/deb.sh", WEIR_BIN], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    package = ROOT / made.stdout.splitlines()[-1]
    built = subprocess.run([ROOT / "scripts/image.sh", package, TAG], capture_output=True, text=True, timeout=280)
    if built.returncode == NOTHING_BUILDS:
        pytest.skip(built.stderr.strip())
    if built.returncode != 0 and any(words in built.stderr for words in ("dial tcp", "i/o timeout", "no such host", "Temporary failure")):
        pytest.skip(f"the base image or its packages cannot be fetched here: {built.stderr.strip().splitlines()[-1]}")
    assert built.returncode == 0, built.stderr
    builder = built.stdout.split()[0]
    if builder == "buildah":
        pytest.skip("buildah builds images, and nothing here runs them")
    yield builder
    subprocess.run([builder, "rmi", "--force", TAG], capture_output=True, timeout=60)


def inside(builder: str, *command: str) -> subprocess.CompletedProcess:
    whole = [builder, "run", "--rm", "--entrypoint", "/bin/sh", TAG, "-c", *command]
    return subprocess.run(whole, capture_output=True, text=True, timeout=120)


def test_a_single_node_runs_as_its_user(image):
    script = """
    set -e
    id -un
    weir init --role single --config /var/lib/weir/weir.toml
    weir serve --config /var/lib/weir/weir.toml >/tmp/ready 2>/tmp/log & node=$!
    until grep -q ready /tmp/ready; do sleep 0.1; kill -0 $node || { cat /tmp/log; exit 1; }; done
    weir cp /etc/passwd root://127.0.0.1//copy && weir cat root://127.0.0.1//copy | cmp - /etc/passwd
    weir status
    kill $node; wait $node
    """
    done = inside(image, script)
    assert done.returncode == 0, done
    assert done.stdout.startswith("weir\n") and "healthy" in done.stdout, done


def test_a_manager_is_made_in_it(image):
    done = inside(image, "weir init --role manager --config /var/lib/weir/weir.toml && cat /var/lib/weir/weir.toml")
    assert done.returncode == 0 and 'role = "manager"' in done.stdout and "insecure = true" in done.stdout, done


def test_the_recipe_names_what_exists():
    """Also where nothing builds it."""
    recipe = (ROOT / "packaging/Containerfile").read_text()
    assert "ENTRYPOINT [\"/usr/bin/weir\"]" in recipe and "USER weir" in recipe
    done = subprocess.run(["bash", "-n", ROOT / "scripts/image.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
