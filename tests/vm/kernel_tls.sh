# In the guest: a server whose clients are on the host, and a shell for the test, which orders what happens.
export RUST_LOG=info FAIRLIFT_CONTROL=unix:/tmp/control.sock XDG_RUNTIME_DIR=/tmp
chmod 600 /pki/server-key.pem
: >/tmp/rules.toml
fairlift serve --config /config.toml >/tmp/said 2>/tmp/log & server=$!
until fairlift status >/dev/null 2>&1; do
  kill -0 $server || { cat /tmp/said /tmp/log; exit 1; }
  sleep 0.2
done
cat >/order <<'END'
#!/bin/sh
cat >/tmp/order.$$
exec sh /tmp/order.$$ 2>&1
END
chmod 755 /order
nc -ll -p 9000 -e /order >/dev/null 2>&1 &
echo GUEST-SERVES
until [ -e /tmp/over ]; do sleep 0.2; done
