"""Some tests of stock clients and of weir's own on a cluster of three managers, with the address of a standby. `make soak` runs all that
are marked `managers_ok`."""

# ruff: noqa: F401, F811 (pytest takes tests and fixtures by their names)

import pytest
from content import write
from harness import weir
from managers import ManagersServer
from test_bindings import big, opened, test_many_clients_at_once, test_only_one_of_many_makes_the_name, test_vector_reads
from test_cluster import (
    folder,
    test_a_file_is_changed_in_place_on_all_its_stores,
    test_a_file_is_moved_while_it_is_written,
    test_a_file_that_is_removed_while_it_is_written_is_gone,
    test_an_overwritten_file_has_the_new_content_alone,
    test_attributes_and_names_are_the_managers,
    test_our_own_client_writes_and_reads,
)
from test_copy import test_a_tree_goes_up_and_comes_down, test_an_existing_file_stands_unless_forced
from test_xrdfs import put, test_chmod, test_ls_goes_down_the_whole_tree, test_mv_of_directories, test_mv_of_files, test_rm_and_rmdir


@pytest.fixture(scope="module")
def kind() -> type[ManagersServer]:
    return ManagersServer


@pytest.fixture(scope="module")
def cluster(node):
    node.cluster.policy("/two", "replica(2)")
    return node.cluster


def test_a_tree_of_small_files_goes_up_and_comes_down_by_weir(cluster, folder, tmp_path):
    tree, back = tmp_path / "tree", tmp_path / "back"
    tree.mkdir()
    files = {f"file{number}": write(tree / f"file{number}", number, 1000 * number).read_bytes() for number in range(20)}
    up = weir("cp", "-r", str(tree), f"{cluster.url}{folder}/tree")
    assert up.returncode == 0, up.stderr
    down = weir("cp", "-r", f"{cluster.url}{folder}/tree", str(back))
    assert down.returncode == 0, down.stderr
    assert {file.name: file.read_bytes() for file in back.iterdir()} == files
