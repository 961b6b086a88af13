/* nbdload - closed-loop NBD load generator (Linux, no library needed).
 *
 *   nbdload --uri URI [--conns N] [--depth D] [--bs 4k] [--rw randread|randwrite|randrw|read|write]
 *           [--rwmix PCT_READ] [--seconds S] [--warmup S] [--flush-every N] [--fua]
 *           [--size BYTES] [--offset BYTES] [--threads T] [--structured] [--no-batch]
 *           [--trace FILE] [--server-pid PID] [--blkstat vda] [--verify] [--seed N] [--label STR] [--interval MS]
 *
 * URI: nbd://host[:port]/export or nbd+unix:///export?socket=/path
 * depth is PER CONNECTION; each of the depth lanes of a connection is a closed loop.
 * --flush-every N: after N completed writes a lane sends NBD_CMD_FLUSH and waits for
 *   it before its next write ("commit" latency = first write sent .. flush answered).
 * By default all replies found in one recv() are answered with one sendmsg() (batching
 * client, the cheapest possible load for the server); --no-batch sends each request with
 * its own send(), as the Linux kernel client and libnbd do.
 * Before the warm-up one synchronous FLUSH is sent on connection 0 (not with --no-preflush), so that a
 * run does not pay for dirty data that an earlier run left behind.
 * --verify: every block carries (seed, block number, version); reads are checked against
 *   the last acknowledged write over whatever connection; at the end all written blocks are
 *   read back over connection 0. Exit status 3 on a mismatch.
 * --interval MS: a JSON line for each such interval of the measured time: where it ends, in ms of CLOCK_MONOTONIC
 *   (one clock for all processes), its I/Os in a second, and their 99th percentile in us.
 * --warmup 0 counts from the first request on.
 * --trace FILE: reads --bs bytes at each offset of the file in turn (a number a line), and begins again at its end; all lanes of all
 *   connections share the place in it. "trace_ms": when each has been read once, from the start of the warm-up; 0: not by the end.
 * "gap_max_ms": the longest time in which a thread had no reply.
 * "other_cpu_cores" = machine busy CPU that is neither server nor client: a run with more than ~0.15 is
 * disturbed. One JSON object on stdout, the last line.
 * Exit: 0 ok, 1 I/O errors or lost connection, 2 usage, 3 verify failed.
 *
 * build: make (see Makefile)
 */
#include "lg.h"
#include <pthread.h>
#include <stdatomic.h>
#include <getopt.h>
#include <fcntl.h>
#include <endian.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/uio.h>
#include <sys/epoll.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netdb.h>

#define RB (256 * 1024)
enum { C_READ = 0, C_WRITE = 1, C_DISC = 2, C_FLUSH = 3 };
static struct {
    char *uri, host[256], port[16], sock[256], export[256], *label, *blk;
    int unix_, nopre, conns, depth, threads, structured, nobatch, fua, flush_every, seq, rwmix, verify;
    uint64_t bs, size, offset, seed;
    double secs, warm, interval;
    long spid;
} O = {.conns = 1, .depth = 1, .threads = 1, .bs = 4096, .secs = 3, .warm = 0.5, .rwmix = 100, .seed = 1};
static uint64_t exp_size;
static uint16_t exp_flags;
static uint32_t bmin, bpref, bmax;
static _Atomic int phase; /* 0 warmup 1 measure 2 stop */
static uint8_t *pat;      /* shared write payload */
static uint32_t *ver;
static uint8_t *busy;
static uint64_t vbad, vchk;
static uint64_t *trace, trace_len, trace_start;
static _Atomic uint64_t trace_at, trace_done, trace_ns;

typedef struct {
    uint8_t hdr[28];
    uint8_t type;
    uint8_t inuse;
    uint32_t gen;
    int werr;
    uint64_t off, t, tc;
    uint32_t got;
    int since;
    uint32_t want_ver;
    uint8_t *buf;
} slot_t;
typedef struct {
    int fd, id;
    slot_t *s;
    int *sq;
    unsigned sqh, sqt, sqcap;
    size_t sqoff;
    int inflight, dead, pollout;
    uint8_t *rb;
    size_t rh, rt;
    uint64_t skip;
    int skip_slot;
    size_t skip_pos;
    int skip_done;
    uint64_t seqpos, region0, region1;
    uint64_t rng;
    int structured;
} conn_t;
typedef struct {
    pthread_t th;
    int c0, c1;
    hist_t h[4];
    uint64_t errs, lost, last, gap;
    int ep;
    uint64_t firsterr;
} thr_t;
static conn_t *conns;
static thr_t *thr;

static void put64(uint8_t *p, uint64_t v) {
    v = htobe64(v);
    memcpy(p, &v, 8);
}
static void put32(uint8_t *p, uint32_t v) {
    v = htobe32(v);
    memcpy(p, &v, 4);
}
static void put16(uint8_t *p, uint16_t v) {
    v = htobe16(v);
    memcpy(p, &v, 2);
}
static uint64_t get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return be64toh(v);
}
static uint32_t get32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return be32toh(v);
}
static uint16_t get16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return be16toh(v);
}
static void xread(int fd, void *b, size_t n) {
    uint8_t *p = b;
    while (n) {
        ssize_t r = recv(fd, p, n, 0);
        if (r <= 0) {
            if (r < 0 && errno == EINTR) continue;
            DIE("handshake: peer closed (%s)", r ? strerror(errno) : "EOF");
        }
        p += r;
        n -= r;
    }
}
static void xwrite(int fd, const void *b, size_t n) {
    const uint8_t *p = b;
    while (n) {
        ssize_t r = send(fd, p, n, MSG_NOSIGNAL);
        if (r <= 0) {
            if (r < 0 && errno == EINTR) continue;
            DIE("handshake: send: %s", strerror(errno));
        }
        p += r;
        n -= r;
    }
}

static void parse_uri(const char *u) {
    const char *p;
    if (!strncmp(u, "nbd+unix://", 11)) {
        O.unix_ = 1;
        p = u + 11;
        if (*p == '/') p++;
        const char *q = strchr(p, '?');
        if (!q) DIE("no ?socket= in %s", u);
        snprintf(O.export, sizeof O.export, "%.*s", (int)(q - p), p);
        const char *s = strstr(q, "socket=");
        if (!s) DIE("no socket= in %s", u);
        snprintf(O.sock, sizeof O.sock, "%s", s + 7);
        char *a = strchr(O.sock, '&');
        if (a) *a = 0;
    } else if (!strncmp(u, "nbd://", 6)) {
        p = u + 6;
        const char *sl = strchr(p, '/');
        int n = sl ? (int)(sl - p) : (int)strlen(p);
        char hp[256];
        snprintf(hp, sizeof hp, "%.*s", n, p);
        char *c = strrchr(hp, ':');
        if (c) {
            *c = 0;
            snprintf(O.port, sizeof O.port, "%s", c + 1);
        } else strcpy(O.port, "10809");
        snprintf(O.host, sizeof O.host, "%s", hp[0] ? hp : "localhost");
        snprintf(O.export, sizeof O.export, "%s", sl ? sl + 1 : "");
    } else DIE("unsupported URI %s", u);
}
static int dial(void) {
    int fd;
    if (O.unix_) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        snprintf(a.sun_path, sizeof a.sun_path, "%s", O.sock);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (void *)&a, sizeof a)) DIE("connect %s: %s", O.sock, strerror(errno));
    } else {
        struct addrinfo h = {.ai_socktype = SOCK_STREAM}, *r;
        if (getaddrinfo(O.host, O.port, &h, &r)) DIE("resolve %s", O.host);
        fd = -1;
        for (struct addrinfo *i = r; i; i = i->ai_next) {
            fd = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC, 0);
            if (!connect(fd, i->ai_addr, i->ai_addrlen)) break;
            close(fd);
            fd = -1;
        }
        freeaddrinfo(r);
        if (fd < 0) DIE("connect %s:%s: %s", O.host, O.port, strerror(errno));
        int one = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    return fd;
}
static void opt_send(int fd, uint32_t opt, const void *d, uint32_t n) {
    uint8_t h[16];
    put64(h, 0x49484156454F5054ull);
    put32(h + 8, opt);
    put32(h + 12, n);
    xwrite(fd, h, 16);
    if (n) xwrite(fd, d, n);
}
static uint32_t opt_reply(int fd, uint32_t opt, uint8_t *d, uint32_t *n) {
    uint8_t h[20];
    xread(fd, h, 20);
    if (get64(h) != 0x3e889045565a9ull || get32(h + 8) != opt) DIE("bad option reply");
    uint32_t t = get32(h + 12), l = get32(h + 16);
    if (l > 4096) DIE("option reply too long");
    xread(fd, d, l);
    *n = l;
    return t;
}
static void handshake(conn_t *c) {
    uint8_t b[4200];
    uint32_t n;
    int fd = c->fd;
    xread(fd, b, 18);
    if (get64(b) != 0x4e42444d41474943ull || get64(b + 8) != 0x49484156454F5054ull)
        DIE("not a newstyle NBD server");
    uint16_t hf = get16(b + 16);
    uint32_t cf = (hf & 3);
    put32(b, cf);
    xwrite(fd, b, 4);
    if (O.structured) {
        opt_send(fd, 8, NULL, 0);
        c->structured = opt_reply(fd, 8, b, &n) == 1;
    }
    uint32_t el = strlen(O.export);
    put32(b, el);
    memcpy(b + 4, O.export, el);
    put16(b + 4 + el, 1);
    put16(b + 6 + el, 3);
    opt_send(fd, 7, b, 8 + el);
    for (;;) {
        uint32_t t = opt_reply(fd, 7, b, &n);
        if (t == 3) {
            uint16_t k = get16(b);
            if (k == 0) {
                exp_size = get64(b + 2);
                exp_flags = get16(b + 10);
            } else if (k == 3) {
                bmin = get32(b + 2);
                bpref = get32(b + 6);
                bmax = get32(b + 10);
            }
        } else if (t == 1) break;
        else if (t == 0x80000001u) { /* GO unsupported: old EXPORT_NAME */ opt_send(fd, 1, O.export, el);
            xread(fd, b, 10 + ((hf & 2) ? 0 : 124));
            exp_size = get64(b);
            exp_flags = get16(b + 8);
            break;
        } else DIE("NBD_OPT_GO refused: 0x%x %.*s", t, (int)n, b);
    }
}
static void stamp(uint8_t *p, uint64_t blk, uint32_t v) {
    uint64_t s = O.seed ^ (blk * 0x2545F4914F6CDD1Dull) ^ ((uint64_t)v << 40);
    for (uint64_t i = 0; i < O.bs; i += 8) {
        uint64_t x = rng_next(&s);
        memcpy(p + i, &x, 8);
    }
}
static int check(const uint8_t *p, uint64_t blk, uint32_t v) {
    uint64_t s = O.seed ^ (blk * 0x2545F4914F6CDD1Dull) ^ ((uint64_t)v << 40);
    for (uint64_t i = 0; i < O.bs; i += 8) {
        uint64_t x = rng_next(&s);
        if (memcmp(p + i, &x, 8)) return 0;
    }
    return 1;
}

static void enqueue(conn_t *c, int si, int type, uint64_t off) {
    slot_t *s = &c->s[si];
    s->type = type;
    s->off = off;
    s->inuse = 1;
    s->got = 0;
    s->werr = 0;
    s->gen++;
    s->t = now_ns();
    uint32_t len = type == C_FLUSH ? 0 : O.bs;
    put32(s->hdr, 0x25609513);
    put16(s->hdr + 4, (type == C_WRITE && O.fua) ? 1 : 0);
    put16(s->hdr + 6, type);
    put64(s->hdr + 8, ((uint64_t)s->gen << 32) | (uint32_t)si);
    put64(s->hdr + 16, type == C_FLUSH ? 0 : off);
    put32(s->hdr + 24, len);
    c->sq[c->sqt++ % c->sqcap] = si;
    c->inflight++;
}
static void next_op(conn_t *c, int si) {
    slot_t *s = &c->s[si];
    if (O.flush_every && s->since >= O.flush_every) {
        enqueue(c, si, C_FLUSH, 0);
        return;
    }
    uint64_t off;
    if (trace) {
        off = trace[atomic_fetch_add(&trace_at, 1) % trace_len];
    } else if (O.seq) {
        off = c->seqpos;
        c->seqpos += O.bs;
        if (c->seqpos + O.bs > c->region1) c->seqpos = c->region0;
    } else {
        uint64_t nb = O.size / O.bs, k;
        do { k = rng_next(&c->rng) % nb; } while (O.verify && busy[k]);
        off = O.offset + k * O.bs;
    }
    int rd = O.rwmix >= 100 ? 1 : O.rwmix <= 0 ? 0 : (int)(rng_next(&c->rng) % 100) < O.rwmix;
    if (O.verify) {
        uint64_t k = (off - O.offset) / O.bs;
        busy[k] = 1;
        if (!rd) {
            s->want_ver = ver[k] + 1;
            stamp(s->buf, k, s->want_ver);
        } else s->want_ver = ver[k];
    }
    if (!rd && s->since == 0) s->tc = now_ns();
    enqueue(c, si, rd ? C_READ : C_WRITE, off);
}
static void conn_dead(thr_t *t, conn_t *c) {
    if (!c->dead) {
        c->dead = 1;
        t->lost++;
        epoll_ctl(t->ep, EPOLL_CTL_DEL, c->fd, NULL);
    }
}
static void flush_sq(thr_t *t, conn_t *c) {
    while (c->sqh != c->sqt && !c->dead) {
        struct iovec v[256];
        int n = 0;
        size_t skip = c->sqoff, tot = 0;
        unsigned h = c->sqh;
        for (; h != c->sqt && n < 254; h++) {
            slot_t *s = &c->s[c->sq[h % c->sqcap]];
            if (skip < 28) {
                v[n].iov_base = s->hdr + skip;
                v[n].iov_len = 28 - skip;
                tot += v[n++].iov_len;
                skip = 0;
            } else skip -= 28;
            if (s->type == C_WRITE) {
                uint8_t *p = O.verify ? s->buf : pat;
                v[n].iov_base = p + skip;
                v[n].iov_len = O.bs - skip;
                tot += v[n++].iov_len;
            }
            skip = 0;
            if (O.nobatch) {
                h++;
                break;
            }
        }
        struct msghdr m = {.msg_iov = v, .msg_iovlen = n};
        ssize_t r = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (r < 0) {
            if (errno == EINTR) continue;
            if (errno != EAGAIN) {
                conn_dead(t, c);
                return;
            }
            r = 0;
        }
        size_t left = r;
        while (left) {
            slot_t *s = &c->s[c->sq[c->sqh % c->sqcap]];
            size_t len = 28 + (s->type == C_WRITE ? O.bs : 0) - c->sqoff;
            if (left >= len) {
                left -= len;
                c->sqh++;
                c->sqoff = 0;
            } else {
                c->sqoff += left;
                left = 0;
            }
        }
        if ((size_t)r < tot) {
            if (!c->pollout) {
                struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
                epoll_ctl(t->ep, EPOLL_CTL_MOD, c->fd, &e);
                c->pollout = 1;
            }
            return;
        }
    }
    if (c->pollout) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(t->ep, EPOLL_CTL_MOD, c->fd, &e);
        c->pollout = 0;
    }
}
static void complete(thr_t *t, conn_t *c, int si, uint32_t err) {
    slot_t *s = &c->s[si];
    uint64_t n = now_ns();
    int ph = atomic_load_explicit(&phase, memory_order_relaxed);
    c->inflight--;
    s->inuse = 0;
    if (trace && atomic_fetch_add(&trace_done, 1) + 1 == trace_len) trace_ns = n - trace_start;
    int cls = s->type == C_READ ? 0 : s->type == C_WRITE ? 1 : 2;
    if (err) {
        if (!t->errs++) t->firsterr = err;
        t->h[cls].err++;
    } else if (ph == 1) h_add(&t->h[cls], n - s->t, cls < 2 ? O.bs : 0);
    if (ph == 1) {
        if (t->last && n - t->last > t->gap) t->gap = n - t->last;
        t->last = n;
    }
    if (O.verify && cls < 2) {
        uint64_t k = (s->off - O.offset) / O.bs;
        busy[k] = 0;
        if (cls == 1 && !err) ver[k] = s->want_ver;
        if (cls == 0 && !err && s->want_ver) {
            vchk++;
            if (!check(s->buf, k, s->want_ver)) {
                if (!vbad++)
                    fprintf(stderr, "VERIFY: block %llu at offset %llu: not version %u\n",
                            (unsigned long long)k, (unsigned long long)s->off, s->want_ver);
            }
        }
    }
    if (s->type == C_WRITE) s->since++;
    else if (s->type == C_FLUSH) {
        s->since = 0;
        if (ph == 1 && !err) h_add(&t->h[3], n - s->tc, 0);
    }
    if (ph < 2) next_op(c, si);
}
static void read_trace(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) {
        perror(path);
        exit(2);
    }
    unsigned long long off;
    while (fscanf(f, "%llu", &off) == 1) {
        if (trace_len % 4096 == 0) trace = realloc(trace, (trace_len + 4096) * sizeof *trace);
        trace[trace_len++] = off;
    }
    fclose(f);
    if (!trace_len) {
        fprintf(stderr, "%s: no offset in it\n", path);
        exit(2);
    }
}
static int find_slot(conn_t *c, uint64_t cookie) {
    uint32_t si = (uint32_t)cookie;
    if (si >= (uint32_t)O.depth || !c->s[si].inuse || c->s[si].gen != (uint32_t)(cookie >> 32)) return -1;
    return si;
}
static void on_in(thr_t *t, conn_t *c) {
    for (;;) {
        /* large payload remaining and nothing buffered: receive straight into place */
        ssize_t r;
        if (c->skip >= 32768 && c->rh == c->rt) {
            slot_t *s = &c->s[c->skip_slot];
            uint8_t *d = O.verify ? s->buf + c->skip_pos : c->rb;
            size_t want = c->skip;
            if (!O.verify && want > RB) want = RB;
            r = recv(c->fd, d, want, MSG_DONTWAIT);
            if (r > 0) {
                c->skip -= r;
                c->skip_pos += r;
                if (!c->skip && c->skip_done) { complete(t, c, c->skip_slot, 0); }
                if (c->skip) continue;
                flush_sq(t, c);
                continue;
            }
        } else {
            if (c->rh == c->rt) c->rh = c->rt = 0;
            else if (c->rt > RB - 64) {
                memmove(c->rb, c->rb + c->rh, c->rt - c->rh);
                c->rt -= c->rh;
                c->rh = 0;
            }
            r = recv(c->fd, c->rb + c->rt, RB - c->rt, MSG_DONTWAIT);
            if (r > 0) c->rt += r;
        }
        if (r == 0) {
            conn_dead(t, c);
            return;
        }
        if (r < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) break;
            conn_dead(t, c);
            return;
        }
        size_t room_before = RB - c->rt;
        for (;;) {
            size_t av = c->rt - c->rh;
            uint8_t *p = c->rb + c->rh;
            if (c->skip) {
                size_t k = av < c->skip ? av : c->skip;
                if (!k) break;
                if (O.verify) memcpy(c->s[c->skip_slot].buf + c->skip_pos, p, k);
                c->rh += k;
                c->skip -= k;
                c->skip_pos += k;
                if (!c->skip && c->skip_done) complete(t, c, c->skip_slot, 0);
                continue;
            }
            if (av < 16) break;
            uint32_t magic = get32(p);
            if (magic == 0x67446698) {
                uint32_t err = get32(p + 4);
                int si = find_slot(c, get64(p + 8));
                if (si < 0) {
                    fprintf(stderr, "unknown cookie in reply\n");
                    conn_dead(t, c);
                    return;
                }
                c->rh += 16;
                if (c->s[si].type == C_READ && !err) {
                    c->skip = O.bs;
                    c->skip_slot = si;
                    c->skip_pos = 0;
                    c->skip_done = 1;
                } else complete(t, c, si, err);
            } else if (magic == 0x668e33ef) {
                if (av < 20) break;
                uint16_t fl = get16(p + 4), ty = get16(p + 6);
                uint32_t len = get32(p + 16);
                int si = find_slot(c, get64(p + 8));
                if (si < 0) {
                    fprintf(stderr, "unknown cookie in chunk\n");
                    conn_dead(t, c);
                    return;
                }
                slot_t *s = &c->s[si];
                int done = fl & 1;
                if (ty == 1) {
                    if (av < 28) break;
                    uint64_t o = get64(p + 20);
                    c->rh += 28;
                    c->skip = len - 8;
                    c->skip_slot = si;
                    c->skip_pos = o - s->off;
                    c->skip_done = done;
                    if (!c->skip && done) complete(t, c, si, 0);
                } else if (ty == 2) {
                    if (av < 32) break;
                    uint64_t o = get64(p + 20);
                    uint32_t hl = get32(p + 28);
                    if (O.verify) memset(s->buf + (o - s->off), 0, hl);
                    c->rh += 32;
                    if (done) complete(t, c, si, 0);
                } else if (ty == 0) {
                    c->rh += 20;
                    if (done) complete(t, c, si, s->werr);
                } else if (ty & 0x8000) {
                    if (av < 20 + len) break;
                    s->werr = get32(p + 20);
                    c->rh += 20 + len;
                    if (done) complete(t, c, si, s->werr);
                } else {
                    fprintf(stderr, "unknown chunk type %u\n", ty);
                    conn_dead(t, c);
                    return;
                }
            } else {
                fprintf(stderr, "bad reply magic %08x\n", magic);
                conn_dead(t, c);
                return;
            }
            if (O.nobatch) flush_sq(t, c);
        }
        flush_sq(t, c);
        if (room_before) break; /* short read: socket very likely drained, wait in epoll */
    }
}
static void *worker(void *a) {
    thr_t *t = a;
    struct epoll_event ev[64];
    uint64_t stop_at = 0;
    t->ep = epoll_create1(EPOLL_CLOEXEC);
    for (int i = t->c0; i < t->c1; i++) {
        conn_t *c = &conns[i];
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(t->ep, EPOLL_CTL_ADD, c->fd, &e);
        for (int k = 0; k < O.depth; k++) next_op(c, k);
        flush_sq(t, c);
    }
    for (;;) {
        int n = epoll_wait(t->ep, ev, 64, 100);
        for (int i = 0; i < n; i++) {
            conn_t *c = ev[i].data.ptr;
            if (c->dead) continue;
            if (ev[i].events & EPOLLOUT) flush_sq(t, c);
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_in(t, c);
        }
        int alive = 0, fl = 0;
        for (int i = t->c0; i < t->c1; i++)
            if (!conns[i].dead) {
                alive++;
                fl += conns[i].inflight;
            }
        if (!alive) break;
        if (atomic_load(&phase) == 2) {
            if (!fl) break;
            if (!stop_at) stop_at = now_ns();
            if (now_ns() - stop_at > 10000000000ull) {
                fprintf(stderr, "drain timeout, %d in flight\n", fl);
                t->lost++;
                break;
            }
        }
    }
    return NULL;
}
static void verify_all(void) { /* synchronous read-back over connection 0 */
    conn_t *c = &conns[0];
    if (c->dead) return;
    uint64_t nb = O.size / O.bs;
    uint8_t h[28], r[64];
    uint8_t *b = malloc(O.bs);
    for (uint64_t k = 0; k < nb; k++)
        if (ver[k]) {
            put32(h, 0x25609513);
            put16(h + 4, 0);
            put16(h + 6, 0);
            put64(h + 8, k);
            put64(h + 16, O.offset + k * O.bs);
            put32(h + 24, O.bs);
            xwrite(c->fd, h, 28);
            if (!c->structured) {
                xread(c->fd, r, 16);
                if (get32(r + 4)) {
                    vbad++;
                    continue;
                }
                xread(c->fd, b, O.bs);
            } else
                for (int done = 0; !done;) {
                    xread(c->fd, r, 20);
                    done = get16(r + 4) & 1;
                    uint16_t ty = get16(r + 6);
                    uint32_t l = get32(r + 16);
                    if (ty == 1) {
                        xread(c->fd, r, 8);
                        xread(c->fd, b + (get64(r) - O.offset - k * O.bs), l - 8);
                    } else if (ty == 2) {
                        xread(c->fd, r, 12);
                        memset(b + (get64(r) - O.offset - k * O.bs), 0, get32(r + 8));
                    } else {
                        uint8_t z[256];
                        while (l) {
                            uint32_t q = l > 256 ? 256 : l;
                            xread(c->fd, z, q);
                            l -= q;
                        }
                    }
                }
            vchk++;
            if (!check(b, k, ver[k])) {
                if (!vbad++)
                    fprintf(stderr, "VERIFY(final): block %llu not version %u\n", (unsigned long long)k,
                            ver[k]);
            }
        }
    free(b);
}
/* The measured time, with a line for each interval. The counts are read while their threads add to them. */
static void intervals(uint64_t t0) {
    static hist_t all, before, part;
    uint64_t end = t0 + (uint64_t)(O.secs * 1e9), step = (uint64_t)(O.interval * 1e6), last = t0;
    for (uint64_t next = t0 + step; next <= end; next += step) {
        struct timespec until = {.tv_sec = next / 1000000000, .tv_nsec = next % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {}
        uint64_t now = now_ns();
        memset(&all, 0, sizeof all);
        for (int i = 0; i < O.threads; i++)
            for (int k = C_READ; k <= C_WRITE; k++) h_merge(&all, &thr[i].h[k]);
        part = all;
        part.n -= before.n;
        for (unsigned i = 0; i < H_N; i++) part.b[i] -= before.b[i];
        printf("{\"at_ms\":%.3f,\"iops\":%.1f,\"p99_us\":%.1f}\n", now / 1e6, part.n * 1e9 / (now - last), h_pct(&part, 99));
        last = now;
        before = all;
    }
}
int main(int argc, char **argv) {
    static struct option lo[] = {{"uri", 1, 0, 'u'},         {"conns", 1, 0, 'c'},
                                 {"depth", 1, 0, 'd'},       {"bs", 1, 0, 'b'},
                                 {"rw", 1, 0, 'r'},          {"rwmix", 1, 0, 'm'},
                                 {"seconds", 1, 0, 's'},     {"warmup", 1, 0, 'w'},
                                 {"flush-every", 1, 0, 'f'}, {"fua", 0, 0, 'F'},
                                 {"size", 1, 0, 'z'},        {"offset", 1, 0, 'o'},
                                 {"threads", 1, 0, 't'},     {"structured", 0, 0, 'S'},
                                 {"no-batch", 0, 0, 'n'},    {"server-pid", 1, 0, 'p'},
                                 {"blkstat", 1, 0, 'k'},     {"verify", 0, 0, 'v'},
                                 {"seed", 1, 0, 'e'},        {"label", 1, 0, 'l'},
                                 {"no-preflush", 0, 0, 'P'}, {"interval", 1, 0, 'i'}, {"trace", 1, 0, 'T'},
                                 {0, 0, 0, 0}};
    int o;
    const char *rw = "randread";
    while ((o = getopt_long(argc, argv, "", lo, NULL)) != -1) switch (o) {
        case 'u': O.uri = optarg; break;
        case 'c': O.conns = atoi(optarg); break;
        case 'd': O.depth = atoi(optarg); break;
        case 'b': O.bs = parse_size(optarg); break;
        case 'r': rw = optarg; break;
        case 'm': O.rwmix = atoi(optarg); break;
        case 's': O.secs = atof(optarg); break;
        case 'w': O.warm = atof(optarg); break;
        case 'f': O.flush_every = atoi(optarg); break;
        case 'F': O.fua = 1; break;
        case 'z': O.size = parse_size(optarg); break;
        case 'o': O.offset = parse_size(optarg); break;
        case 't': O.threads = atoi(optarg); break;
        case 'S': O.structured = 1; break;
        case 'n': O.nobatch = 1; break;
        case 'p': O.spid = atol(optarg); break;
        case 'k': O.blk = optarg; break;
        case 'v': O.verify = 1; break;
        case 'e': O.seed = strtoull(optarg, 0, 0); break;
        case 'l': O.label = optarg; break;
        case 'P': O.nopre = 1; break;
        case 'i': O.interval = atof(optarg); break;
        case 'T': read_trace(optarg); break;
        default: DIE("see the comment at the top of nbdload.c");
        }
    if (!O.uri) DIE("--uri is needed");
    if (!strcmp(rw, "randread")) O.rwmix = 100;
    else if (!strcmp(rw, "randwrite")) O.rwmix = 0;
    else if (!strcmp(rw, "read")) {
        O.rwmix = 100;
        O.seq = 1;
    } else if (!strcmp(rw, "write")) {
        O.rwmix = 0;
        O.seq = 1;
    } else if (!strcmp(rw, "randrw")) {
        if (O.rwmix == 100) O.rwmix = 50;
    } else DIE("bad --rw %s", rw);
    if (O.conns < 1 || O.depth < 1 || O.bs < 1 || O.bs > (64u << 20)) DIE("bad conns/depth/bs");
    if (O.verify) {
        O.threads = 1;
        if (O.bs % 8) DIE("--verify needs bs %% 8 == 0");
    }
    if (O.threads > O.conns) O.threads = O.conns;
    parse_uri(O.uri);
    conns = calloc(O.conns, sizeof *conns);
    pat = aligned_alloc(4096, (O.bs + 4095) & ~4095ull);
    uint64_t ps = O.seed;
    for (uint64_t i = 0; i + 8 <= O.bs; i += 8) {
        uint64_t x = rng_next(&ps);
        memcpy(pat + i, &x, 8);
    }
    uint64_t t_conn0 = now_ns();
    for (int i = 0; i < O.conns; i++) {
        conn_t *c = &conns[i];
        c->id = i;
        c->fd = dial();
        handshake(c);
        c->s = calloc(O.depth, sizeof(slot_t));
        c->sqcap = 1;
        while (c->sqcap < (unsigned)O.depth + 1) c->sqcap *= 2;
        c->sq = calloc(c->sqcap, sizeof(int));
        c->rb = malloc(RB + 64);
        c->rng = O.seed * 7919 + i * 104729 + 13;
        if (O.verify)
            for (int k = 0; k < O.depth; k++) c->s[k].buf = malloc(O.bs);
    }
    double conn_ms = (now_ns() - t_conn0) / 1e6;
    if (O.offset >= exp_size) DIE("--offset past the end");
    if (!O.size || O.offset + O.size > exp_size) O.size = exp_size - O.offset;
    O.size -= O.size % O.bs;
    if (!O.size) DIE("export smaller than bs");
    if (O.rwmix < 100 && (exp_flags & 2)) DIE("export is read-only");
    if (O.flush_every && !(exp_flags & 4)) fprintf(stderr, "note: server does not offer FLUSH\n");
    if (O.fua && !(exp_flags & 8)) fprintf(stderr, "note: server does not offer FUA\n");
    if (O.verify) {
        ver = calloc(O.size / O.bs, 4);
        busy = calloc(O.size / O.bs, 1);
        if ((uint64_t)O.conns * O.depth * 2 > O.size / O.bs) DIE("range too small for --verify");
    }
    for (int i = 0; i < O.conns; i++) {
        uint64_t per = O.size / O.conns / O.bs * O.bs;
        if (per < O.bs) per = O.bs;
        conns[i].region0 = O.offset + (i * per) % O.size;
        conns[i].region1 = conns[i].region0 + per;
        conns[i].seqpos = conns[i].region0;
    }
    double pre_ms = 0;
    if (!O.nopre && (exp_flags & 4)) {
        uint8_t h[28] = {0};
        uint64_t a = now_ns();
        put32(h, 0x25609513);
        put16(h + 6, C_FLUSH);
        xwrite(conns[0].fd, h, 28);
        xread(conns[0].fd, h, 16);
        if (get32(h) == 0x668e33ef) {
            xread(conns[0].fd, h + 16, 4);
            if (get32(h + 16)) DIE("pre-flush failed");
        }
        pre_ms = (now_ns() - a) / 1e6;
    }
    trace_start = now_ns();
    thr = calloc(O.threads, sizeof *thr);
    if (O.warm <= 0) atomic_store(&phase, 1);
    for (int i = 0; i < O.threads; i++) {
        thr[i].c0 = (int)((long)O.conns * i / O.threads);
        thr[i].c1 = (int)((long)O.conns * (i + 1) / O.threads);
        pthread_create(&thr[i].th, NULL, worker, &thr[i]);
    }
    usleep((useconds_t)(O.warm * 1e6));
    psample_t p0 = ps_take(O.spid);
    blk_t b0 = blk_take(O.blk);
    sysc_t y0 = sys_take();
    double c0 = self_cpu_s();
    uint64_t t0 = now_ns();
    atomic_store(&phase, 1);
    if (O.interval > 0) intervals(t0);
    else usleep((useconds_t)(O.secs * 1e6));
    psample_t p1 = ps_take(O.spid);
    blk_t b1 = blk_take(O.blk);
    atomic_store(&phase, 2);
    uint64_t t1 = now_ns();
    double c1 = self_cpu_s();
    sysc_t y1 = sys_take();
    for (int i = 0; i < O.threads; i++) pthread_join(thr[i].th, NULL);
    static hist_t H[4], A;
    uint64_t errs = 0, lost = 0, fe = 0, gap = 0;
    for (int i = 0; i < O.threads; i++) {
        for (int k = 0; k < 4; k++) h_merge(&H[k], &thr[i].h[k]);
        errs += thr[i].errs;
        lost += thr[i].lost;
        if (thr[i].gap > gap) gap = thr[i].gap;
        if (thr[i].firsterr) fe = thr[i].firsterr;
    }
    if (O.verify && !lost) verify_all();
    for (int i = 0; i < O.conns; i++)
        if (!conns[i].dead) {
            uint8_t h[28] = {0};
            put32(h, 0x25609513);
            put16(h + 6, C_DISC);
            if (send(conns[i].fd, h, 28, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {}
            close(conns[i].fd);
        }
    h_merge(&A, &H[0]);
    h_merge(&A, &H[1]);
    double T = (t1 - t0) / 1e9, io = A.n ? A.n : 1;
    printf("{\"label\":\"%s\",\"uri\":\"%s\",\"rw\":\"%s\",\"bs\":%llu,\"conns\":%d,\"depth\":%d,\"threads\":"
           "%d,\"flush_every\":%d,\"fua\":%d,\"structured\":%d,\"batch\":%d,\"seconds\":%.3f,\"export_size\":"
           "%llu,\"export_flags\":%u,\"block_min\":%u,\"block_pref\":%u,\"block_max\":%u,\"connect_ms\":%.2f,"
           "\"preflush_ms\":%.1f,",
           O.label ? O.label : "", O.uri, rw, (unsigned long long)O.bs, O.conns, O.depth, O.threads,
           O.flush_every, O.fua, conns[0].structured, !O.nobatch, T, (unsigned long long)exp_size, exp_flags,
           bmin, bpref, bmax, conn_ms, pre_ms);
    if (trace) printf("\"trace_ms\":%.1f,", trace_ns / 1e6);
    printf("\"iops\":%.1f,\"mb_s\":%.1f,\"gap_max_ms\":%.3f,\"io_errors\":%llu,\"first_errno\":%llu,\"conns_lost\":%llu,",
           A.n / T, A.bytes / T / 1e6, gap / 1e6, (unsigned long long)errs, (unsigned long long)fe,
           (unsigned long long)lost);
    h_json(stdout, "all", &A, T, 1);
    h_json(stdout, "read", &H[0], T, 1);
    h_json(stdout, "write", &H[1], T, 1);
    h_json(stdout, "flush", &H[2], T, 1);
    h_json(stdout, "commit", &H[3], T, 1);
    if (O.spid) {
        double ot = ((y1.busy - y0.busy) - (c1 - c0) - (p1.cpu_s - p0.cpu_s)) / T;
        printf("\"other_cpu_cores\":%.3f,", ot < 0 ? 0.0 : ot);
    }
    printf("\"steal_cores\":%.3f,", (y1.steal - y0.steal) / T);
    printf("\"client_cpu_cores\":%.3f,\"client_cpu_us_per_io\":%.2f,", (c1 - c0) / T, (c1 - c0) * 1e6 / io);
    if (O.spid)
        printf("\"server\":{\"pid\":%ld,\"cpu_cores\":%.3f,\"cpu_us_per_io\":%.2f,\"rss_kb\":%ld,\"pss_kb\":%"
               "ld,\"threads\":%d,\"procs\":%d,\"ctxsw_per_io\":%.3f},",
               O.spid, (p1.cpu_s - p0.cpu_s) / T, (p1.cpu_s - p0.cpu_s) * 1e6 / io, p1.rss_kb, p1.pss_kb,
               p1.threads, p1.procs, (p1.vcsw + p1.ivcsw - p0.vcsw - p0.ivcsw) / io);
    if (O.blk)
        printf("\"blk\":{\"dev\":\"%s\",\"reads\":%llu,\"read_sectors\":%llu,\"writes\":%llu,\"write_"
               "sectors\":%llu,\"flushes\":%llu,\"flush_ms\":%llu},",
               O.blk, b1.rd - b0.rd, b1.rd_sec - b0.rd_sec, b1.wr - b0.wr, b1.wr_sec - b0.wr_sec,
               b1.fl - b0.fl, b1.fl_ms - b0.fl_ms);
    printf("\"verify\":{\"on\":%d,\"checked\":%llu,\"bad\":%llu}}\n", O.verify, (unsigned long long)vchk,
           (unsigned long long)vbad);
    return vbad ? 3 : (errs || lost) ? 1 : 0;
}
