/* vhostload - closed-loop vhost-user-blk load generator: a small vhost-user FRONT END
 * (no guest, no libblkio). Same options, JSON and meaning as nbdload.
 *
 *   vhostload --socket PATH [--queues N] [--depth D] [--bs 4k] [--rw ...] [--rwmix P]
 *             [--seconds S] [--warmup S] [--cooldown S] [--flush-every N] [--size B] [--offset B] [--qsize 256]
 *             [--no-event-idx] [--poll] [--server-pid PID] [--blkstat vda] [--seed N] [--label STR] [--verify]
 * --cooldown: the load goes on for so long after what is measured (beside another load that is measured).
 * depth is PER QUEUE. One client thread; completions by eventfd (epoll), or busy polling with --poll.
 * --verify: like nbdload (single process, stamped blocks).
 * build: gcc -O2 -Wall -o vhostload vhostload.c
 */
#include "lg.h"
#include <getopt.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/mman.h>
#include <sys/eventfd.h>
#include <sys/epoll.h>
#include <stdatomic.h>

static struct { char *sock, *label, *blk; int queues, depth, qsize, flush_every, seq, rwmix, verify, noevidx, poll; uint64_t bs, size, offset, seed; double secs, warm, cool; long spid; }
 O = { .queues = 1, .depth = 1, .qsize = 256, .bs = 4096, .secs = 3, .warm = 0.5, .rwmix = 100, .seed = 1 };

enum { GET_FEATURES = 1, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE, SET_LOG_BASE, SET_LOG_FD, SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR, GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE, GET_CONFIG = 24 };
struct __attribute__((packed)) vmsg { uint32_t req, flags, size; union { uint64_t u64; struct { uint32_t idx, num; } st; struct { uint32_t idx, flags; uint64_t desc, used, avail, log; } addr; struct { uint32_t n, pad; struct { uint64_t gpa, size, uva, off; } r[1]; } mem; struct { uint32_t off, size, flags; uint8_t d[256]; } cfg; uint8_t raw[512]; }; };
static int vfd;
static void vsend(struct vmsg *m, int *fds, int nfd) {
    struct iovec io = { m, 12 + m->size }; char cb[CMSG_SPACE(sizeof(int) * 8)]; struct msghdr h = { .msg_iov = &io, .msg_iovlen = 1 };
    if (nfd) { h.msg_control = cb; h.msg_controllen = CMSG_SPACE(sizeof(int) * nfd); struct cmsghdr *c = CMSG_FIRSTHDR(&h); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int) * nfd); memcpy(CMSG_DATA(c), fds, sizeof(int) * nfd); }
    m->flags |= 1; if (sendmsg(vfd, &h, MSG_NOSIGNAL) != (ssize_t)io.iov_len) DIE("vhost-user send: %s", strerror(errno));
}
static void vrecv(struct vmsg *m) { if (recv(vfd, m, 12, MSG_WAITALL) != 12) DIE("vhost-user: peer closed"); if (m->size > 500) DIE("vhost-user: reply too big"); if (m->size && recv(vfd, m->raw, m->size, MSG_WAITALL) != (ssize_t)m->size) DIE("vhost-user: short reply"); }
static uint64_t vget(int req) { struct vmsg m = { .req = req }; vsend(&m, 0, 0); vrecv(&m); return m.u64; }
static void vset(int req, uint64_t v) { struct vmsg m = { .req = req, .size = 8 }; m.u64 = v; vsend(&m, 0, 0); }
static void vstate(int req, uint32_t i, uint32_t n) { struct vmsg m = { .req = req, .size = 8 }; m.st.idx = i; m.st.num = n; vsend(&m, 0, 0); }

struct desc { uint64_t addr; uint32_t len; uint16_t flags, next; };
struct avail { uint16_t flags, idx, ring[]; };
struct ue { uint32_t id, len; };
struct used { uint16_t flags, idx; struct ue ring[]; };
struct breq { uint32_t type, pad; uint64_t sector; };
typedef struct { uint64_t t, tc, off; int type, since; uint32_t wv; struct breq *rq; uint8_t *st, *buf; } slot_t;
typedef struct { int kick, call; struct desc *d; struct avail *a; struct used *u; uint16_t *used_event, *avail_event; uint16_t last_used, ai, last_kick; slot_t *s; uint64_t rng, seqpos, r0, r1; uint64_t kicks, irqs; int inflight; } q_t;
static q_t *Q; static int evidx; static uint8_t *mem; static uint64_t memsz; static uint64_t cap; static uint32_t *ver; static uint8_t *busy; static uint64_t vbad, vchk;
static hist_t H[4]; static int phase; static uint64_t errs;
static void stamp(uint8_t *p, uint64_t blk, uint32_t v) { uint64_t s = O.seed ^ (blk * 0x2545F4914F6CDD1Dull) ^ ((uint64_t)v << 40); for (uint64_t i = 0; i < O.bs; i += 8) { uint64_t x = rng_next(&s); memcpy(p + i, &x, 8); } }
static int check(const uint8_t *p, uint64_t blk, uint32_t v) { uint64_t s = O.seed ^ (blk * 0x2545F4914F6CDD1Dull) ^ ((uint64_t)v << 40); for (uint64_t i = 0; i < O.bs; i += 8) { uint64_t x = rng_next(&s); if (memcmp(p + i, &x, 8)) return 0; } return 1; }
static void submit(q_t *q, int si, int type, uint64_t off) {   /* type 0 read 1 write 4 flush */
    slot_t *s = &q->s[si]; int b = si * 3; s->type = type; s->off = off; s->rq->type = type; s->rq->pad = 0; s->rq->sector = type == 4 ? 0 : off / 512; *s->st = 0xff; s->t = now_ns();
    q->d[b].flags = 1; q->d[b].next = type == 4 ? b + 2 : b + 1;
    q->d[b + 1].flags = 1 | (type == 0 ? 2 : 0); q->d[b + 1].next = b + 2; q->d[b + 1].len = O.bs; q->d[b + 2].flags = 2;
    q->a->ring[q->ai % O.qsize] = b; q->ai++; q->inflight++;
}
static void next_op(q_t *q, int si) {
    slot_t *s = &q->s[si]; if (O.flush_every && s->since >= O.flush_every) { submit(q, si, 4, 0); return; }
    uint64_t off; if (O.seq) { off = q->seqpos; q->seqpos += O.bs; if (q->seqpos + O.bs > q->r1) q->seqpos = q->r0; } else { uint64_t nb = O.size / O.bs, k; do k = rng_next(&q->rng) % nb; while (O.verify && busy[k]); off = O.offset + k * O.bs; }
    int rd = O.rwmix >= 100 ? 1 : O.rwmix <= 0 ? 0 : (int)(rng_next(&q->rng) % 100) < O.rwmix;
    if (O.verify) { uint64_t k = (off - O.offset) / O.bs; busy[k] = 1; if (!rd) { s->wv = ver[k] + 1; stamp(s->buf, k, s->wv); } else s->wv = ver[k]; }
    if (!rd && !s->since) s->tc = now_ns();
    submit(q, si, rd ? 0 : 1, off);
}
static void publish(q_t *q) {
    uint16_t old = q->last_kick, new = q->ai; if (old == new) return;
    atomic_thread_fence(memory_order_release); *(volatile uint16_t *)&q->a->idx = new; atomic_thread_fence(memory_order_seq_cst); q->last_kick = new;
    int need = evidx ? (uint16_t)(new - *(volatile uint16_t *)q->avail_event - 1) < (uint16_t)(new - old) : !(*(volatile uint16_t *)&q->u->flags & 1);
    if (need) { uint64_t one = 1; q->kicks++; if (write(q->kick, &one, 8) != 8) DIE("kick"); }
}
static int reap(q_t *q) {
    int n = 0;
    for (;;) {
        atomic_thread_fence(memory_order_acquire); uint16_t ui = *(volatile uint16_t *)&q->u->idx;
        if (q->last_used == ui) { if (evidx && !O.poll) { *(volatile uint16_t *)q->used_event = q->last_used; atomic_thread_fence(memory_order_seq_cst); if (*(volatile uint16_t *)&q->u->idx != q->last_used) continue; } break; }
        atomic_thread_fence(memory_order_acquire);
        while (q->last_used != ui) {
            int si = q->u->ring[q->last_used % O.qsize].id / 3; q->last_used++; n++; slot_t *s = &q->s[si]; uint64_t t = now_ns(); q->inflight--;
            int cls = s->type == 0 ? 0 : s->type == 1 ? 1 : 2; int bad = *s->st != 0; if (bad) { errs++; H[cls].err++; } else if (phase == 1) h_add(&H[cls], t - s->t, cls < 2 ? O.bs : 0);
            if (O.verify && cls < 2) { uint64_t k = (s->off - O.offset) / O.bs; busy[k] = 0; if (cls == 1 && !bad) ver[k] = s->wv; if (!cls && !bad && s->wv) { vchk++; if (!check(s->buf, k, s->wv)) { if (!vbad++) fprintf(stderr, "VERIFY: block %llu not version %u\n", (unsigned long long)k, s->wv); } } }
            if (cls == 1) s->since++; else if (cls == 2) { s->since = 0; if (phase == 1 && !bad) h_add(&H[3], t - s->tc, 0); }
            if (phase < 3) next_op(q, si);
        }
        publish(q);
    }
    return n;
}
int main(int argc, char **argv) {
    static struct option lo[] = { {"socket",1,0,'u'},{"queues",1,0,'c'},{"depth",1,0,'d'},{"bs",1,0,'b'},{"rw",1,0,'r'},{"rwmix",1,0,'m'},{"seconds",1,0,'s'},{"warmup",1,0,'w'},{"cooldown",1,0,'C'},{"flush-every",1,0,'f'},{"size",1,0,'z'},{"offset",1,0,'o'},{"qsize",1,0,'q'},{"no-event-idx",0,0,'E'},{"poll",0,0,'P'},{"server-pid",1,0,'p'},{"blkstat",1,0,'k'},{"verify",0,0,'v'},{"seed",1,0,'e'},{"label",1,0,'l'},{0,0,0,0} };
    int o; const char *rw = "randread"; while ((o = getopt_long(argc, argv, "", lo, 0)) != -1) switch (o) { case 'u': O.sock = optarg; break; case 'c': O.queues = atoi(optarg); break; case 'd': O.depth = atoi(optarg); break; case 'b': O.bs = parse_size(optarg); break; case 'r': rw = optarg; break; case 'm': O.rwmix = atoi(optarg); break; case 's': O.secs = atof(optarg); break; case 'w': O.warm = atof(optarg); break; case 'C': O.cool = atof(optarg); break; case 'f': O.flush_every = atoi(optarg); break; case 'z': O.size = parse_size(optarg); break; case 'o': O.offset = parse_size(optarg); break; case 'q': O.qsize = atoi(optarg); break; case 'E': O.noevidx = 1; break; case 'P': O.poll = 1; break; case 'p': O.spid = atol(optarg); break; case 'k': O.blk = optarg; break; case 'v': O.verify = 1; break; case 'e': O.seed = strtoull(optarg, 0, 0); break; case 'l': O.label = optarg; break; default: DIE("see the comment at the top of vhostload.c"); }
    if (!O.sock) DIE("--socket is needed");
    if (!strcmp(rw, "randread")) O.rwmix = 100; else if (!strcmp(rw, "randwrite")) O.rwmix = 0; else if (!strcmp(rw, "read")) { O.rwmix = 100; O.seq = 1; } else if (!strcmp(rw, "write")) { O.rwmix = 0; O.seq = 1; } else if (!strcmp(rw, "randrw")) { if (O.rwmix == 100) O.rwmix = 50; } else DIE("bad --rw");
    if (O.bs % 512 || O.depth * 3 > O.qsize || (O.qsize & (O.qsize - 1))) DIE("bs must be a multiple of 512, depth*3 <= qsize, qsize a power of two");
    struct sockaddr_un sa = { .sun_family = AF_UNIX }; snprintf(sa.sun_path, sizeof sa.sun_path, "%s", O.sock); vfd = socket(AF_UNIX, SOCK_STREAM, 0); uint64_t tc0 = now_ns(); if (connect(vfd, (void *)&sa, sizeof sa)) DIE("connect %s: %s", O.sock, strerror(errno));
    uint64_t feat = vget(GET_FEATURES); { struct vmsg m = { .req = SET_OWNER }; vsend(&m, 0, 0); }
    uint64_t pf = 0; if (feat >> 30 & 1) { pf = vget(GET_PROTOCOL_FEATURES); vset(SET_PROTOCOL_FEATURES, pf & ((1 << 0) | (1 << 9))); }
    uint64_t qmax = (pf & 1) ? vget(GET_QUEUE_NUM) : 1; if ((uint64_t)O.queues > qmax) DIE("back end offers %llu queues", (unsigned long long)qmax);
    uint64_t want = (1ull << 32) | (1ull << 30) | (1ull << 9) | (1ull << 12) | (O.noevidx ? 0 : 1ull << 29); want &= feat; evidx = want >> 29 & 1; vset(SET_FEATURES, want);
    if (pf >> 9 & 1) { struct vmsg m = { .req = GET_CONFIG, .size = 12 + 60 }; m.cfg.size = 60; vsend(&m, 0, 0); vrecv(&m); memcpy(&cap, m.cfg.d, 8); cap *= 512; } else cap = O.size;
    if (O.offset >= cap) DIE("capacity %llu too small", (unsigned long long)cap); if (!O.size || O.offset + O.size > cap) O.size = cap - O.offset; O.size -= O.size % O.bs;
    uint64_t dsz = 16ull * O.qsize, asz = 6 + 2ull * O.qsize, usz = 6 + 8ull * O.qsize; uint64_t qsz = (dsz + asz + 63) / 64 * 64 + (usz + 63) / 64 * 64 + 64ull * O.depth; qsz = (qsz + 4095) & ~4095ull; uint64_t bufs = (uint64_t)O.queues * O.depth * O.bs; memsz = (qsz * O.queues + bufs + (2 << 20) - 1) & ~((2ull << 20) - 1);
    int mfd = memfd_create("vhostload", MFD_CLOEXEC); if (ftruncate(mfd, memsz)) DIE("ftruncate"); mem = mmap(0, memsz, PROT_READ | PROT_WRITE, MAP_SHARED, mfd, 0); if (mem == MAP_FAILED) DIE("mmap"); memset(mem, 0, memsz);
    { struct vmsg m = { .req = SET_MEM_TABLE, .size = 8 + 32 }; m.mem.n = 1; m.mem.r[0].gpa = 0; m.mem.r[0].size = memsz; m.mem.r[0].uva = (uint64_t)mem; m.mem.r[0].off = 0; vsend(&m, &mfd, 1); }
    if (O.verify) { ver = calloc(O.size / O.bs, 4); busy = calloc(O.size / O.bs, 1); }
    Q = calloc(O.queues, sizeof *Q); int ep = epoll_create1(0); uint8_t *bp = mem + qsz * O.queues;
    for (int i = 0; i < O.queues; i++) {
        q_t *q = &Q[i]; uint8_t *b = mem + qsz * i; q->d = (void *)b; q->a = (void *)(b + dsz); uint64_t uo = (dsz + asz + 63) / 64 * 64; q->u = (void *)(b + uo); q->used_event = &q->a->ring[O.qsize]; q->avail_event = (uint16_t *)&q->u->ring[O.qsize]; uint8_t *rq = b + uo + (usz + 63) / 64 * 64;
        q->s = calloc(O.depth, sizeof(slot_t)); q->kick = eventfd(0, EFD_NONBLOCK); q->call = eventfd(0, EFD_NONBLOCK);
        for (int k = 0; k < O.depth; k++) { slot_t *s = &q->s[k]; s->rq = (void *)(rq + 64 * k); s->st = rq + 64 * k + 32; s->buf = bp; bp += O.bs; struct desc *d = &q->d[k * 3]; d[0].addr = (uint8_t *)s->rq - mem; d[0].len = 16; d[1].addr = s->buf - mem; d[1].len = O.bs; d[2].addr = s->st - mem; d[2].len = 1; uint64_t ps = O.seed + k; for (uint64_t z = 0; z < O.bs; z += 8) { uint64_t x = rng_next(&ps); memcpy(s->buf + z, &x, 8); } }
        uint64_t per = O.size / O.queues / O.bs * O.bs; q->r0 = O.offset + i * per; q->r1 = q->r0 + per; q->seqpos = q->r0; q->rng = O.seed * 7919 + i * 104729 + 13;
        vstate(SET_VRING_NUM, i, O.qsize); vstate(SET_VRING_BASE, i, 0);
        struct vmsg m = { .req = SET_VRING_ADDR, .size = 40 }; m.addr.idx = i; m.addr.desc = (uint64_t)q->d; m.addr.avail = (uint64_t)q->a; m.addr.used = (uint64_t)q->u; vsend(&m, 0, 0);
        struct vmsg c = { .req = SET_VRING_CALL, .size = 8 }; c.u64 = i; vsend(&c, &q->call, 1); struct vmsg kk = { .req = SET_VRING_KICK, .size = 8 }; kk.u64 = i; vsend(&kk, &q->kick, 1); if (want >> 30 & 1) vstate(SET_VRING_ENABLE, i, 1);
        struct epoll_event e = { .events = EPOLLIN, .data.u32 = i }; epoll_ctl(ep, EPOLL_CTL_ADD, q->call, &e);
    }
    double conn_ms = (now_ns() - tc0) / 1e6;
    for (int i = 0; i < O.queues; i++) { for (int k = 0; k < O.depth; k++) next_op(&Q[i], k); publish(&Q[i]); }
    uint64_t ts = now_ns(), t0 = 0, t1 = 0, drain = 0; psample_t p0 = {0}, p1 = {0}; blk_t b0 = {0}, b1 = {0}; sysc_t y0 = {0}, y1 = {0}; double c0 = 0, c1 = 0; int lost = 0; uint64_t k0 = 0, k1 = 0;
    for (unsigned it = 0;; it++) {
        struct epoll_event ev[64]; int n = O.poll ? 0 : epoll_wait(ep, ev, 64, 100);
        if (O.poll) for (int i = 0; i < O.queues; i++) reap(&Q[i]); else for (int i = 0; i < n; i++) { q_t *q = &Q[ev[i].data.u32]; uint64_t x; if (read(q->call, &x, 8) < 0) {} q->irqs++; reap(q); }
        uint64_t t = now_ns();
        if (phase == 0 && t - ts > O.warm * 1e9) { p0 = ps_take(O.spid); b0 = blk_take(O.blk); c0 = self_cpu_s(); y0 = sys_take(); for (int i = 0; i < O.queues; i++) k0 += Q[i].kicks; t0 = now_ns(); phase = 1; }
        else if (phase == 1 && t - t0 > O.secs * 1e9) { t1 = now_ns(); p1 = ps_take(O.spid); b1 = blk_take(O.blk); c1 = self_cpu_s(); y1 = sys_take(); for (int i = 0; i < O.queues; i++) k1 += Q[i].kicks; phase = 2; drain = t; }
        else if (phase == 2 && t - t1 > O.cool * 1e9) { phase = 3; drain = t; }
        else if (phase == 3) { int f = 0; for (int i = 0; i < O.queues; i++) { reap(&Q[i]); f += Q[i].inflight; } if (!f) break; if (t - drain > 10e9) { lost = 1; fprintf(stderr, "drain timeout\n"); break; } }
    }
    static hist_t A; h_merge(&A, &H[0]); h_merge(&A, &H[1]); double T = (t1 - t0) / 1e9, io = A.n ? A.n : 1;
    printf("{\"label\":\"%s\",\"uri\":\"vhost-user-blk:%s\",\"rw\":\"%s\",\"bs\":%llu,\"conns\":%d,\"depth\":%d,\"flush_every\":%d,\"event_idx\":%d,\"poll\":%d,\"seconds\":%.3f,\"export_size\":%llu,\"features\":\"0x%llx\",\"proto_features\":\"0x%llx\",\"queues_max\":%llu,\"connect_ms\":%.2f,", O.label ? O.label : "", O.sock, rw, (unsigned long long)O.bs, O.queues, O.depth, O.flush_every, evidx, O.poll, T, (unsigned long long)cap, (unsigned long long)feat, (unsigned long long)pf, (unsigned long long)qmax, conn_ms);
    printf("\"iops\":%.1f,\"mb_s\":%.1f,\"io_errors\":%llu,\"conns_lost\":%d,\"kicks_per_io\":%.3f,", A.n / T, A.bytes / T / 1e6, (unsigned long long)errs, lost, (k1 - k0) / io);
    h_json(stdout, "all", &A, T, 1); h_json(stdout, "read", &H[0], T, 1); h_json(stdout, "write", &H[1], T, 1); h_json(stdout, "flush", &H[2], T, 1); h_json(stdout, "commit", &H[3], T, 1);
    if (O.spid) { double ot = ((y1.busy - y0.busy) - (c1 - c0) - (p1.cpu_s - p0.cpu_s)) / T; printf("\"other_cpu_cores\":%.3f,", ot < 0 ? 0.0 : ot); }
    printf("\"steal_cores\":%.3f,", (y1.steal - y0.steal) / T);
    printf("\"client_cpu_cores\":%.3f,\"client_cpu_us_per_io\":%.2f,", (c1 - c0) / T, (c1 - c0) * 1e6 / io);
    if (O.spid) printf("\"server\":{\"pid\":%ld,\"cpu_cores\":%.3f,\"cpu_us_per_io\":%.2f,\"rss_kb\":%ld,\"pss_kb\":%ld,\"threads\":%d,\"procs\":%d,\"ctxsw_per_io\":%.3f},", O.spid, (p1.cpu_s - p0.cpu_s) / T, (p1.cpu_s - p0.cpu_s) * 1e6 / io, p1.rss_kb, p1.pss_kb, p1.threads, p1.procs, (p1.vcsw + p1.ivcsw - p0.vcsw - p0.ivcsw) / io);
    if (O.blk) printf("\"blk\":{\"dev\":\"%s\",\"reads\":%llu,\"read_sectors\":%llu,\"writes\":%llu,\"write_sectors\":%llu,\"flushes\":%llu,\"flush_ms\":%llu},", O.blk, b1.rd - b0.rd, b1.rd_sec - b0.rd_sec, b1.wr - b0.wr, b1.wr_sec - b0.wr_sec, b1.fl - b0.fl, b1.fl_ms - b0.fl_ms);
    printf("\"verify\":{\"on\":%d,\"checked\":%llu,\"bad\":%llu}}\n", O.verify, (unsigned long long)vchk, (unsigned long long)vbad);
    return vbad ? 3 : (errs || lost) ? 1 : 0;
}
