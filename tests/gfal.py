"""Runs gfal2, the library under FTS and the grid's tools, as a separate program. `gfal.py OPERATION ARGUMENT...` prints one JSON object
with `code` (0 or gfal2's errno), `message` and the result. This calls the C library as its header gfal_api.h declares
it, so that the tests need no Python package of the system."""

import ctypes
import json
import stat
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_long, c_size_t, c_ssize_t, c_uint32, c_ulonglong, c_void_p

STAT_MODE_AT, STAT_SIZE_AT, DIRENT_NAME_AT = 24, 48, 19  # x86-64 glibc; the tests run nowhere else


class GError(ctypes.Structure):
    _fields_ = [("domain", c_uint32), ("code", c_int), ("message", c_char_p)]


class Failed(Exception):
    pass


class Gfal:
    def __init__(self) -> None:
        self.library, self.transfer = ctypes.CDLL("libgfal2.so.2"), ctypes.CDLL("libgfal_transfer.so.2")
        self.context = self.call("gfal2_context_new", returns=c_void_p, bare=True)

    def call(self, name: str, *arguments, returns=c_int, bare: bool = False, transfer: bool = False):
        """The result; raises the GError as an exception."""
        function = getattr(self.transfer if transfer else self.library, name)
        function.restype = returns
        error = POINTER(GError)()
        front = () if bare else (c_void_p(self.context),)
        result = function(*front, *arguments, byref(error))
        if error:
            raise Failed(error.contents.code, (error.contents.message or b"").decode(errors="replace"))
        return result

    def copy(self, source: str, target: str, checksum: str) -> dict:
        parameters = c_void_p(self.call("gfalt_params_handle_new", returns=c_void_p, bare=True, transfer=True))
        self.call("gfalt_set_create_parent_dir", parameters, c_int(1), bare=True, transfer=True)
        self.call("gfalt_set_replace_existing_file", parameters, c_int(1), bare=True, transfer=True)
        both = c_int(3)  # GFALT_CHECKSUM_BOTH: of the source and of the target
        self.call("gfalt_set_checksum", parameters, both, c_char_p(checksum.encode()), c_char_p(None), bare=True, transfer=True)
        self.call("gfalt_copy_file", parameters, c_char_p(source.encode()), c_char_p(target.encode()), transfer=True)
        return {}

    def stat(self, url: str) -> dict:
        buffer = ctypes.create_string_buffer(256)
        self.call("gfal2_stat", c_char_p(url.encode()), buffer)
        mode = int.from_bytes(buffer.raw[STAT_MODE_AT : STAT_MODE_AT + 4], "little")
        return {"size": int.from_bytes(buffer.raw[STAT_SIZE_AT : STAT_SIZE_AT + 8], "little"), "directory": stat.S_ISDIR(mode)}

    def ls(self, url: str) -> dict:
        directory, names = c_void_p(self.call("gfal2_opendir", c_char_p(url.encode()), returns=c_void_p)), []
        while entry := self.call("gfal2_readdir", directory, returns=c_void_p):
            names.append(ctypes.string_at(entry + DIRENT_NAME_AT).decode())
        self.call("gfal2_closedir", directory)
        return {"names": names}

    def sum(self, url: str, kind: str) -> dict:
        buffer = ctypes.create_string_buffer(128)
        all_of_it = (c_ulonglong(0), c_ulonglong(0))
        self.call("gfal2_checksum", c_char_p(url.encode()), c_char_p(kind.encode()), *all_of_it, buffer, c_size_t(len(buffer)))
        return {"sum": buffer.value.decode()}

    def xattr(self, url: str, name: str) -> dict:
        buffer = ctypes.create_string_buffer(4096)
        url_and_name = (c_char_p(url.encode()), c_char_p(name.encode()))
        self.call("gfal2_getxattr", *url_and_name, buffer, c_size_t(len(buffer)), returns=c_ssize_t)
        return {"value": buffer.value.decode()}

    def mkdir(self, url: str) -> dict:
        self.call("gfal2_mkdir_rec", c_char_p(url.encode()), c_int(0o755))
        return {}

    def rename(self, old: str, new: str) -> dict:
        self.call("gfal2_rename", c_char_p(old.encode()), c_char_p(new.encode()))
        return {}

    def rm(self, url: str) -> dict:
        self.call("gfal2_unlink", c_char_p(url.encode()))
        return {}

    def rmdir(self, url: str) -> dict:
        self.call("gfal2_rmdir", c_char_p(url.encode()))
        return {}

    def rm_r(self, url: str) -> dict:
        """Does what `gfal-rm -r` does, through the library's calls."""
        removed = 0
        for name in set(self.ls(url)["names"]) - {".", ".."}:
            below = f"{url}/{name}"
            if self.stat(below)["directory"]:
                removed += self.rm_r(below)["removed"]
            else:
                self.rm(below)
                removed += 1
        self.rmdir(url)
        return {"removed": removed + 1}

    def set_xattr(self, url: str, name: str, value: str) -> dict:
        words = [c_char_p(word.encode()) for word in (url, name, value)]
        self.call("gfal2_setxattr", *words, c_size_t(len(value)), c_int(0))
        return {}

    def stage(self, url: str) -> dict:
        """Requests staging, polls it, and releases the file."""
        token, seconds = ctypes.create_string_buffer(256), c_long(100)
        where = c_char_p(url.encode())
        self.call("gfal2_bring_online", where, seconds, seconds, token, c_size_t(len(token)), c_int(1))
        done = self.call("gfal2_bring_online_poll", where, token)
        self.call("gfal2_release_file", where, token)
        return {"token": token.value.decode(), "online": done == 1}


if __name__ == "__main__":
    operation, *arguments = sys.argv[1:]
    try:
        print(json.dumps({"code": 0, "message": "", **getattr(Gfal(), operation)(*arguments)}))
    except Failed as failed:
        print(json.dumps({"code": failed.args[0], "message": failed.args[1]}))
