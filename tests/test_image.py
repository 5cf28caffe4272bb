"""The container image: a node and a cluster's node are made in it. buildah builds it, on a base of the distribution's own packages if the
registry of the recipe's base cannot be reached. Where containers cannot be run, it runs in a changed root."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from debian_package import make_package
from harness import ROOT
from ports import free_port

TAG = "weir-test:latest"
NOTHING_BUILDS = 3
# So that no builder asks for rights that a container on a build server does not have.
ENVIRONMENT = os.environ | {"BUILDAH_ISOLATION": "chroot"}
# The first one makes the image; each step has a shorter limit of its own.
pytestmark = pytest.mark.timeout(1300)


def said_by(*command: str | Path, timeout: float = 60) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT).stdout


def has_image(name: str) -> bool:
    return subprocess.run(["buildah", "inspect", "--type", "image", name], capture_output=True, env=ENVIRONMENT).returncode == 0


def own_base() -> str:
    """A base image of this distribution's packages."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release["VERSION_CODENAME"].strip('"')
    name = f"localhost/weir-test-base:{codename}"
    if has_image(name):
        return name
    sources = (line.split() for line in said_by("apt-get", "indextargets", "--format", "$(SITE) $(RELEASE)").splitlines())
    site = next(line[0] for line in sources if line[1] == codename)
    with tempfile.TemporaryDirectory() as folder:
        said_by("debootstrap", "--variant=minbase", codename, f"{folder}/root", site, timeout=400)
        container = said_by("buildah", "from", "scratch").strip()
        said_by("buildah", "add", "--quiet", container, f"{folder}/root", "/", timeout=120)
        said_by("buildah", "commit", "--quiet", "--rm", container, name, timeout=120)
    return name


def build(package: Path, base: str | None) -> subprocess.CompletedProcess:
    environment = ENVIRONMENT | ({"WEIR_IMAGE_BASE": base} if base else {})
    command = [ROOT / "scripts/image.sh", package, TAG]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


@pytest.fixture(scope="module")
def inside():
    """Runs a shell's script in the image."""
    package = make_package()
    built = build(package, None)
    if built.returncode == NOTHING_BUILDS:
        pytest.skip(built.stderr.strip())
    if built.returncode != 0 and any(words in built.stderr for words in ("dial tcp", "i/o timeout", "no such host", "Temporary failure")):
        try:
            base = own_base()
        except (LookupError, OSError, StopIteration, subprocess.SubprocessError) as error:
            why = getattr(error, "stderr", None) or str(error)
            pytest.skip(f"neither the base image nor the packages for another can be fetched here: {why.strip()[-300:]}")
        built = build(package, base)
    assert built.returncode == 0, built.stderr
    builder = built.stdout.split()[0]
    is_run = (
        builder != "buildah"
        and subprocess.run([builder, "run", "--rm", "--entrypoint", "/bin/true", TAG], capture_output=True, timeout=60).returncode == 0
    )
    if not is_run and (shutil.which("buildah") is None or not has_image(TAG)):
        pytest.skip("the image is built, and nothing here runs it")

    def run(script: str) -> subprocess.CompletedProcess:
        container = None if is_run else said_by("buildah", "from", "--pull-never", TAG).strip()
        command = [builder, "run", "--rm", "--entrypoint", "/bin/sh", TAG, "-c", script]
        if container:
            command = ["buildah", "run", container, "--", "/bin/sh", "-c", script]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
        finally:
            if container:
                said_by("buildah", "rm", container)

    yield run
    subprocess.run([builder, "rmi", "--force", TAG], capture_output=True, timeout=60)


@pytest.mark.long
def test_a_single_node_runs_as_its_user(inside):
    # The port may be the machine's own.
    at = f"127.0.0.1:{free_port()}"
    script = f"""
    set -e
    id -un
    weir init --role single --listen {at} --config /var/lib/weir/weir.toml
    weir serve --config /var/lib/weir/weir.toml >/tmp/ready 2>/tmp/log & node=$!
    until grep -q ready /tmp/ready; do sleep 0.1; kill -0 $node || {{ cat /tmp/log; exit 1; }}; done
    weir cp /etc/passwd root://{at}//copy && weir cat root://{at}//copy | cmp - /etc/passwd
    weir status
    kill $node; wait $node
    """
    done = inside(script)
    assert done.returncode == 0, done
    # The machine may be short of disk space.
    well = re.search(r"^(healthy$|warning\n- warning: the disk of )", done.stdout, re.MULTILINE)
    assert done.stdout.startswith("weir\n") and well, done


@pytest.mark.long
def test_a_manager_is_made_in_it(inside):
    ports = f"--listen 0.0.0.0:{free_port()} --nodes 127.0.0.1:{free_port()}"
    done = inside(f"weir init --role manager {ports} --config /var/lib/weir/weir.toml && cat /var/lib/weir/weir.toml")
    assert done.returncode == 0 and 'role = "manager"' in done.stdout and "insecure = true" in done.stdout, done


def test_the_recipe_names_what_exists():
    """Also where nothing builds it."""
    recipe = (ROOT / "packaging/Containerfile").read_text()
    assert 'ENTRYPOINT ["/usr/bin/weir"]' in recipe and "USER weir" in recipe
    done = subprocess.run(["bash", "-n", ROOT / "scripts/image.sh"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
