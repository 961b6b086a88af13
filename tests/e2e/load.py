"""Load of which every byte is known."""

import struct

from harness import *
from nbdclient import FLUSH, FUA, READ, WRITE, Client

BLOCK = 4096


class Load(threading.Thread):
    """Reads, writes and flushes, 32 at once, of one region, and knows what is in each block."""

    def __init__(self, address, export, first, blocks, begins=None, **options):
        super().__init__(daemon=True)
        self.client = Client(address, export, timeout=30, **options)
        self.export, self.first, self.blocks, self.ends = export, first, blocks, False
        self.random = random.Random(f"{SEED}/{first}")
        begins = begins or bytes((first + blocks) * BLOCK)
        self.known = {block: begins[block * BLOCK:(block + 1) * BLOCK] for block in range(first, first + blocks)}
        self.error, self.replies, self.gaps = None, 0, []
        self.start()

    def run(self):
        try:
            self.work()
        except Exception as error:
            self.error = error

    def work(self):
        busy, under_way, version, last = set(), {}, 0, time.monotonic()
        while not self.ends or under_way:
            batch = []
            while not self.ends and len(under_way) < 32:
                block, kind = self.random.randrange(self.first, self.first + self.blocks), self.random.random()
                if block in busy:
                    continue
                if kind < 0.02:
                    batch.append(self.client.request(FLUSH))
                    under_way[self.client._cookie] = None
                    continue
                busy.add(block)
                if kind < 0.5:
                    batch.append(self.client.request(READ, block * BLOCK, BLOCK))
                    under_way[self.client._cookie] = (block, None)
                else:
                    version += 1
                    payload = struct.pack(">QQ", block, version) * (BLOCK // 16)
                    flags = FUA if kind > 0.95 else 0
                    batch.append(self.client.request(WRITE, block * BLOCK, BLOCK, payload, flags))
                    under_way[self.client._cookie] = (block, payload)
            self.client.send(*batch)
            reply = self.client.reply()
            now = time.monotonic()
            self.gaps.append(now - last)
            last = now
            asked = under_way.pop(reply.cookie)
            if reply.error:
                raise AssertionError(f"error {reply.error}: {reply.message}")
            self.replies += 1
            if asked is not None:
                block, payload = asked
                busy.remove(block)
                if payload is None:
                    if reply.data(block * BLOCK, BLOCK) != self.known[block]:
                        raise AssertionError(f"block {block} is not as it was written")
                else:
                    self.known[block] = payload

    def longest(self):
        """The longest time without a reply since this was asked last."""
        gaps, self.gaps = self.gaps, []
        return max(gaps, default=0)

    def end(self):
        self.ends = True
        self.join(40)
        if self.error or self.is_alive():
            raise AssertionError(f"load on {self.export}, region {self.first}: {self.error or 'it hangs'}")


def goes_on(loads, count=50):
    """Each connection is answered again and again."""
    before = [one.replies for one in loads]
    until(lambda: all(one.replies > was + count or one.error for one, was in zip(loads, before)), "the load goes on")
    for one in loads:
        if one.error:
            raise AssertionError(f"load on {one.export}, region {one.first}: {one.error}")
