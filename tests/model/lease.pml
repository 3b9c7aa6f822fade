/*
 * Leases, fencing, delivery and settling of a cluster's spool (src/cluster/membership.h), for spin.
 * Names in brackets are those of the code. test_lease.py runs it.
 *
 * Two nodes, two partitions, one database whose transactions are atomic. Three deliveries ("parts"):
 *
 *      k    message  partition
 *      0       0         0       message 0 has recipients in both partitions: its report part, which
 *      1       0         1       removes the content, belongs to partition 0 (its home)
 *      2       1         1       message 1 has one part: settling it removes its content
 *
 * Every action of a node is a step of its own, so a pause (SIGSTOP) between any two of them is one
 * of the interleavings: above all between "is my lease still good?" and what is done on the answer.
 * Requests to the database are on the wire for as long as they like, and survive their sender.
 *
 * Time: a lease ends for its holder (lexp) before it ends for the database (dexp), because the
 * holder counts from before it sent the renewal. That is the one assumption about clocks: that they
 * run at about the same speed.
 *
 * What is checked, always:
 *   A1  nothing is settled but by the partition's owner, with its present incarnation
 *   A2  when a node passes the check before a delivery's start or commit point it is the owner
 *   A3  a final dot comes from who is not the owner any more only for deliveries that had passed their
 *       last check when the lease was lost, once each: copies <= 1 + losses after that check
 *   A4  content is removed once, when no part is left, by the home's owner
 *   A5  a voluntary release leaves nothing behind: no dot comes from who has released
 * and as ltl done, with weak fairness: every message is handled in the end and its content gone.
 *
 * Run by hand:
 *   D="-DONLY0 -DMAXKILL=1 -DMAXCRASH=1 -DMAXRELEASE=1"       message 0 alone; ONLY1: message 1 alone
 *   spin $D -a lease.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DNOCLAIM -o pan pan.c && ./pan -m1000000
 *   spin $D -DMAXSLIP=1 -a lease.pml && gcc -O2 -DCOLLAPSE -DNFAIR=3 -o pan pan.c &&
 *       ./pan -m1000000 -a -f -N done
 * With these bounds 263,520 states of message 1, 8,781,998 of message 0; nothing is violated.
 * Without its parts the protocol must fail: add one of these to $D, and pan finds an error.
 *   NOFENCE     writes do not look at the incarnation and the owner
 *   NOLOCK      they look, but without a lock that lasts until the commit
 *   NOCHECK     deliveries start without a look at the lease
 *   RUDE        a partition is released with deliveries under way
 *   SLOWCLOCK   the holder's clock may be so slow that others see its lease end first
 */
#ifndef MAXKILL
#define MAXKILL 2 /* leases taken from nodes that look dead */
#endif
#ifndef MAXCRASH
#define MAXCRASH 1
#endif
#ifndef MAXRELEASE
#define MAXRELEASE 1
#endif
#define N      2
#define NONE   3
#define PART(k) (k == 0 -> 0 : 1)
#define J(n, k) ((n)*3 + (k))

/* ---- the database ---- */
byte incarnation[N]; /* table fence */
bool dexp[N];        /* node.until has passed */
byte own[2];         /* table lease */
bool left[3];        /* part rows */
bool home_left;      /* the report part of message 0 */
bool content[2];

/* ---- on the wire: settle requests (per job), and a request to close message 0 ---- */
byte settle_inc[N * 3]; /* 0: none, else the incarnation it was sent with */
byte close_inc[N];
#ifdef NOLOCK
byte passed[N * 3]; /* checked, not written yet */
#endif

/* ---- nodes ---- */
bool alive[N], lexp[N];
byte inc[N];            /* which incarnation it believes to be; 0: none */
mtype = { NO, VALID, STALE };
mtype renewal[N];       /* a renewal was made whose answer is under way: still good for us or not */
bool mine[N * 2];       /* believes to own */
byte job[N * 3];        /* 0 idle, 1 loaded, 2 handed to an agent, 3 past the last check, 4 dot sent */

/* ---- what an observer sees ---- */
byte kills, crashes, releases;
bool begun;
bool late[N * 3];       /* had passed its check when the partition was lost */
byte copies[3], losses[3];

#define owner(n, p) (own[p] == n && incarnation[n] == inc[n])
#define message_left(m) (m == 0 -> (left[0] || left[1]) : left[2])
#define all_done (!left[0] && !left[1] && !left[2] && !home_left && !content[0] && !content[1])

#ifdef MAXSLIP /* for liveness: a node that lives misses its renewals so often and no more */
byte slips;
#define may_slip (slips < MAXSLIP)
#define slip slips++
#else
#define may_slip true
#define slip skip
#endif

#ifdef RUDE
#define quiet(n) true
#else
#define quiet(n) (job[J(n, 1)] < 2 && job[J(n, 2)] < 2 && !settle_inc[J(n, 1)] && !settle_inc[J(n, 2)])
#endif

#ifdef NOCHECK
#define good(n) true
#else
#define good(n) (!lexp[n])
#endif

#ifdef NOFENCE
#define fence_ok(n, i, p) true
#else
#define fence_ok(n, i, p) (incarnation[n] == i && own[p] == n)
#endif

/* Partition p leaves node o: what of it is past its check may still send its dot. */
inline lose(o, p)
{
    k = 0;
    do
    :: k < 3 ->
        if
        :: PART(k) == p && job[J(o, k)] >= 3 -> losses[k]++; late[J(o, k)] = (job[J(o, k)] == 3)
        :: else
        fi;
        k++
    :: else -> break
    od;
    own[p] = NONE
}

inline forget(n)
{
    k = 0;
    do
    :: k < 3 ->
        if
        :: job[J(n, k)] != 3 -> job[J(n, k)] = 0 /* 3 is with the agent: it can't be called back */
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    mine[n * 2] = false;
    mine[n * 2 + 1] = false;
    renewal[n] = NO;
    inc[n] = 0
}

inline write_settle(n, j)
{
    assert(own[PART(j)] == n && incarnation[n] == settle_inc[J(n, j)]); /* A1 */
    left[j] = false;
    if
    :: j == 2 -> assert(content[1]); content[1] = false /* A4 */
    :: else
    fi
}

/* One delivery of node n: claimed; handed to an agent; its last look before the dot; the dot, perhaps
 * much later; its result sent to the database. */
#define DELIVERY(n, k, p)                                                                            \
    :: d_step { alive[n] && mine[n * 2 + p] && left[k] && job[J(n, k)] == 0 && !settle_inc[J(n, k)] -> \
           job[J(n, k)] = 1 }                                                                        \
    :: d_step { alive[n] && job[J(n, k)] == 1 && !mine[n * 2 + p] -> job[J(n, k)] = 0 }              \
    :: d_step { alive[n] && job[J(n, k)] == 1 && mine[n * 2 + p] && good(n) ->                       \
           assert(owner(n, p)); /* A2 */                                                             \
           job[J(n, k)] = 2 }                                                                        \
    :: d_step { alive[n] && job[J(n, k)] == 2 && good(n) ->                                          \
           assert(owner(n, p)); /* A2 */                                                             \
           job[J(n, k)] = 3 }                                                                        \
    :: d_step { alive[n] && job[J(n, k)] == 2 && lexp[n] -> job[J(n, k)] = 0 }                       \
    :: d_step { alive[n] && job[J(n, k)] == 3 ->                                                     \
           assert(owner(n, p) || late[J(n, k)]); /* A3, A5 */                                        \
           late[J(n, k)] = false;                                                                    \
           copies[k]++;                                                                              \
           assert(copies[k] <= 1 + losses[k]); /* A3 */                                              \
           job[J(n, k)] = (inc[n] != 0 -> 4 : 0) }                                                   \
    :: d_step { alive[n] && job[J(n, k)] == 4 && settle_inc[J(n, k)] == 0 && inc[n] != 0 ->          \
           settle_inc[J(n, k)] = inc[n] }

proctype node(byte n)
{
    byte k;
end:
    do
    /* ---- [comes up] or comes back after it learnt that it was given up ---- */
    :: d_step { alive[n] && inc[n] == 0 && !(job[J(n, 0)] || job[J(n, 1)] || job[J(n, 2)]) &&
                incarnation[n] < 5 ->
           incarnation[n]++;
           if :: own[0] == n -> lose(n, 0) :: else fi; /* of its former life */
           if :: own[1] == n -> lose(n, 1) :: else fi;
           k = 0;
           inc[n] = incarnation[n]; dexp[n] = false; lexp[n] = false; renewal[n] = NO }

    /* ---- [renews]: the database first, its answer later ---- */
    :: d_step { alive[n] && inc[n] != 0 && incarnation[n] == inc[n] && renewal[n] == NO && lexp[n] ->
           dexp[n] = false; renewal[n] = VALID }
    :: d_step { alive[n] && renewal[n] != NO ->
           if :: renewal[n] == VALID -> lexp[n] = false :: else fi; renewal[n] = NO }
    /* ---- [learns that it was given up] ---- */
    :: d_step { alive[n] && inc[n] != 0 && incarnation[n] != inc[n] -> forget(n) }

    /* ---- [takes over]: the dead node's incarnation, and its partitions; then [claims] them ---- */
    :: d_step { alive[n] && inc[n] != 0 && incarnation[n] == inc[n] && !dexp[n] && dexp[1 - n] &&
                (own[0] == 1 - n || own[1] == 1 - n) && kills < MAXKILL ->
           kills++; incarnation[1 - n]++;
           if :: own[0] == 1 - n -> lose(1 - n, 0) :: else fi;
           if :: own[1] == 1 - n -> lose(1 - n, 1) :: else fi;
           k = 0 }
    :: d_step { alive[n] && inc[n] != 0 && incarnation[n] == inc[n] && !dexp[n] && own[0] == NONE ->
           own[0] = n; mine[n * 2] = true }
    :: d_step { alive[n] && inc[n] != 0 && incarnation[n] == inc[n] && !dexp[n] && own[1] == NONE ->
           own[1] = n; mine[n * 2 + 1] = true }

    /* ---- [gives away] a partition: it stops, waits for what is under way, then lets go ---- */
    :: d_step { alive[n] && mine[n * 2 + 1] && mine[n * 2] && alive[1 - n] && releases < MAXRELEASE &&
quiet(n) && owner(n, 1) ->
           releases++;
           own[1] = NONE; mine[n * 2 + 1] = false;
           if :: job[J(n, 1)] == 1 -> job[J(n, 1)] = 0 :: else fi;
           if :: job[J(n, 2)] == 1 -> job[J(n, 2)] = 0 :: else fi }

    /* ---- deliveries ---- */
    DELIVERY(n, 0, 0)
    DELIVERY(n, 1, 1)
    DELIVERY(n, 2, 1)

    /* ---- the home of message 0 closes it ---- */
    :: d_step { alive[n] && mine[n * 2] && home_left && !left[0] && !left[1] && close_inc[n] == 0 ->
           close_inc[n] = inc[n] }

    /* ---- it dies: what is on the wire stays there, what is with agents is gone ---- */
    :: d_step { alive[n] && crashes < MAXCRASH ->
           crashes++; alive[n] = false;
           k = 0;
           do :: k < 3 ->
                  if :: job[J(n, k)] == 4 && own[PART(k)] == n -> losses[k]++ :: else fi;
                  job[J(n, k)] = 0; late[J(n, k)] = false; k++
              :: else -> break od;
           k = 0;
           forget(n); lexp[n] = true }
    :: d_step { !alive[n] -> alive[n] = true }
    od
}

/* The database takes requests from the wire in any order, each as one transaction. */
#ifdef NOLOCK
#define SETTLE(n, k)                                                                                 \
    :: d_step { settle_inc[J(n, k)] && !passed[J(n, k)] ->                                           \
           if                                                                                        \
           :: fence_ok(n, settle_inc[J(n, k)], PART(k)) && left[k] -> passed[J(n, k)] = 1            \
           :: else -> settle_inc[J(n, k)] = 0; job[J(n, k)] = (job[J(n, k)] == 4 -> 0 : job[J(n, k)]) \
           fi }                                                                                      \
    :: d_step { passed[J(n, k)] ->                                                                   \
           write_settle(n, k);                                                                       \
           passed[J(n, k)] = 0;                                                                      \
           settle_inc[J(n, k)] = 0;                                                                  \
           job[J(n, k)] = (job[J(n, k)] == 4 -> 0 : job[J(n, k)]) }
#else
#define SETTLE(n, k)                                                                                 \
    :: d_step { settle_inc[J(n, k)] ->                                                               \
           if                                                                                        \
           :: fence_ok(n, settle_inc[J(n, k)], PART(k)) && left[k] -> write_settle(n, k)             \
           :: else /* refused whole */                                                               \
           fi;                                                                                       \
           settle_inc[J(n, k)] = 0;                                                                  \
           job[J(n, k)] = (job[J(n, k)] == 4 -> 0 : job[J(n, k)]) /* its answer */ }
#endif

proctype database(byte n)
{
end:
    do
    SETTLE(n, 0)
    SETTLE(n, 1)
    SETTLE(n, 2)
    :: d_step { close_inc[n] ->
           if
           :: fence_ok(n, close_inc[n], 0) && home_left ->
               assert(own[0] == n && content[0] && !left[0] && !left[1]); /* A4 */
               content[0] = false; home_left = false
           :: else
           fi;
           close_inc[n] = 0 }
    od
}

/* Time passes: a lease ends for its holder, then for the database. */
proctype clock(byte n)
{
end:
    do
    :: d_step { !lexp[n] && alive[n] && inc[n] != 0 && !all_done && may_slip -> lexp[n] = true; slip }
    :: d_step { renewal[n] == VALID && lexp[n] && !all_done && may_slip -> renewal[n] = STALE; slip }
#ifdef SLOWCLOCK
    :: d_step { !dexp[n] && !all_done -> dexp[n] = true }
#else
    :: d_step { !dexp[n] && lexp[n] && renewal[n] != VALID && !all_done -> dexp[n] = true }
#endif
    od
}

init
{
    byte i;
    d_step {
        own[0] = NONE; own[1] = NONE;
        #ifndef ONLY1
        left[0] = true; left[1] = true; home_left = true; content[0] = true;
#endif
#ifndef ONLY0
        left[2] = true; content[1] = true;
#endif
        begun = true; alive[0] = true; alive[1] = true;
        renewal[0] = NO; renewal[1] = NO;
        lexp[0] = true; lexp[1] = true; dexp[0] = true; dexp[1] = true
    };
    atomic {
        run node(0); run node(1); run database(0); run database(1); run clock(0); run clock(1)
    }
}

ltl done { [] (begun -> <> all_done) }
