#!/usr/bin/env python3
"""Makes a container image: an OCI layout in a tar file, as `podman load`, `docker load` (25 and newer) and `skopeo copy oci-archive:` take it.

    packaging/image.py [PROGRAM [FILE]]     default: the static program of packaging/static.sh, target/package/fairlift-VERSION-oci.tar

The image has the program, a user and two directories: nothing else, so PROGRAM has to be static. The same program makes the same bytes."""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UID = 65532
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def entry(name, content=None, mode=0o755, uid=0):
    """A file of the image, or a directory if it has no content."""
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid = mode, uid, uid
    if content is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = len(content)
    return info, content


def tar(entries):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as packed:
        for info, content in entries:
            packed.addfile(info, content and io.BytesIO(content))
    return file.getvalue()


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def image(program, version):
    """The files of an OCI layout."""
    layer = tar([
        entry("etc"), entry("etc/passwd", f"root:x:0:0::/:\nfairlift:x:{UID}:{UID}::/srv:\n".encode(), 0o644),
        entry("etc/group", f"root:x:0:\nfairlift:x:{UID}:\n".encode(), 0o644),
        entry("run"), entry("run/fairlift", uid=UID), entry("srv", uid=UID), entry("tmp", mode=0o1777),
        entry("fairlift", program),
    ])
    packed = gzip.compress(layer, 6, mtime=0)
    config = json.dumps({
        "architecture": ARCHITECTURES[platform.machine()], "os": "linux",
        "config": {
            "User": f"{UID}:{UID}", "Entrypoint": ["/fairlift"], "Cmd": ["serve", "--config", "/etc/fairlift.toml"],
            "Env": ["XDG_RUNTIME_DIR=/run/fairlift"], "WorkingDir": "/srv", "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "fairlift", "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "MIT OR Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }).encode()
    blobs = {}

    def blob(kind, content):
        blobs["blobs/sha256/" + digest(content).split(":")[1]] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest(content), "size": len(content)}

    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", config), "layers": [blob("layer.v1.tar+gzip", packed)],
    }).encode()
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"localhost/fairlift:{version}"}  # umoci's; Podman's and Docker's
    named = blob("manifest.v1+json", manifest) | {"annotations": names}
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]}
    return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}


def main():
    arguments = [Path(argument) for argument in sys.argv[1:]]
    program = arguments[0] if arguments else ROOT / f"target/{platform.machine()}-unknown-linux-musl/release/fairlift"
    bytes_ = program.read_bytes()
    if b"/lib64/ld-linux" in bytes_[:4096] or b"/lib/ld-linux" in bytes_[:4096]:
        sys.exit(f"{program} needs libraries, and the image has none: build it by packaging/static.sh")
    version = subprocess.run([program.resolve(), "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    out = arguments[1] if len(arguments) > 1 else ROOT / f"target/package/fairlift-{version}-oci.tar"
    out.parent.mkdir(parents=True, exist_ok=True)
    directories = [entry("blobs"), entry("blobs/sha256")]
    out.write_bytes(tar(directories + [entry(name, content, 0o644) for name, content in sorted(image(bytes_, version).items())]))
    print(out)


if __name__ == "__main__":
    main()
