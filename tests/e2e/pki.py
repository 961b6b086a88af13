"""Certificates of a server, of its clients, and of others."""

import ssl

from harness import *

CLIENT = "extendedKeyUsage=clientAuth\nkeyUsage=digitalSignature\n"


def sign(t, authority, name, subject, extensions):
    """A certificate `name` in the directory of them."""
    place = t.path("pki")
    Path(f"{place}/{name}.ext").write_text(extensions)
    t.run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", subject,
          "-keyout", f"{place}/{name}-key.pem", "-out", f"{place}/{name}.csr")
    t.run("openssl", "x509", "-req", "-in", f"{place}/{name}.csr", "-days", "2", "-CA", f"{place}/{authority}-cert.pem",
          "-CAkey", f"{place}/{authority}-key.pem", "-CAcreateserial", "-extfile", f"{place}/{name}.ext",
          "-out", f"{place}/{name}-cert.pem")


def certificates(t):
    """A directory as QEMU and libnbd want it, for the server and for a client that the same authority signed."""
    place = t.path("pki")
    if os.path.isdir(place):
        return place
    os.mkdir(place)
    os.mkdir(f"{place}/anonymous")

    for authority in "ca", "stranger-ca":
        t.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
              "-subj", f"/CN=Fairlift test {authority}", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
              "-keyout", f"{place}/{authority}-key.pem", "-out", f"{place}/{authority}-cert.pem")
    sign(t, "ca", "server", "/CN=localhost",
         "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\nkeyUsage=digitalSignature\n")
    sign(t, "ca", "client", "/CN=client", CLIENT)
    sign(t, "stranger-ca", "stranger", "/CN=stranger", CLIENT)
    shutil.copy(f"{place}/ca-cert.pem", f"{place}/anonymous/ca-cert.pem")
    return place


def revoke(t, *names, authority="ca", more=()):
    """Has an authority write the list of what it has revoked, which are these too from now on."""
    place = certificates(t)
    its = f"{place}/{authority}"
    if not os.path.exists(f"{its}.cnf"):
        Path(f"{its}.cnf").write_text(f"[ca]\ndefault_ca = it\n[it]\ndatabase = {its}.index\ncrlnumber = {its}.number\n"
                                      "default_md = sha256\ndefault_crl_days = 2\ncrl_extensions = ext\n[ext]\nauthorityKeyIdentifier = keyid\n")
        Path(f"{its}.index").write_text("")
        Path(f"{its}.number").write_text("01\n")
    ca = ["openssl", "ca", "-config", f"{its}.cnf", "-keyfile", f"{its}-key.pem", "-cert", f"{its}-cert.pem"]
    for name in names:
        t.run(*ca, "-revoke", f"{place}/{name}-cert.pem")
    t.run(*ca, "-gencrl", *more, "-out", f"{its}-crl.pem")


def client_context(t, name=None):
    context = ssl.create_default_context(cafile=f"{certificates(t)}/ca-cert.pem")
    if name:
        context.load_cert_chain(f"{certificates(t)}/{name}-cert.pem", f"{certificates(t)}/{name}-key.pem")
    return context
