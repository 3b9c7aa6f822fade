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
 * With -DMOVES=n instead: tables of routes that change, and recipients that move to the partitions
 * of their new routes (src/cluster/parts.h). Message 0 has recipients 0 and 1, both in partition 0;
 * where they go by tables 2 and 3 says n:
 *
 *      1    not divided: it moves as a whole, is divided
 *      2    not divided: it is divided, each part moves
 *      3    a part (others have ended): one of them leaves it as a new part, each part moves
 *
 * Recipient 1 fails and is reported. The message's home, when it is divided, is partition 1.
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
 *   A6  a recipient is routed anew by a table with a higher number than that of its route, so it
 *       moves once for each table at the most, whatever tables its owners have
 *   A7  of a recipient that fails one report is sent
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
 *   RUDE        a partition is released with deliveries in flight
 *   SLOWCLOCK   the holder's clock may be so slow that others see its lease end first
 * With MOVES, too:
 *   BALL        a node routes anew what another table has routed, be it older or newer
 *   NOCOUNT     a part that is made is not added to the message's in the same transaction
 *   NOPASS      recipients move while deliveries of their part are under way
 *   NOHOLD      what moves in a batch that has not ended may be claimed
 *   KEEPHOLD    what was to move in a batch that was refused is held on: then `done` is not so
 * Of moves with -DMAXSLIP=1 -DMAXKILL=1 -DMAXRELEASE=1, each of the three ways: 531,915, 1,119,139
 * and 1,566,753 states with three tables and -DMAXCRASH=0; 2,079,848, 3,410,556 and 6,362,630 with
 * -DMAXTABLE=2 and -DMAXCRASH=1; nothing is violated. And `done`, with -DMOVEFIRST (nothing is
 * delivered by a route that its node's table has made old, so all that moves is at its place in the
 * end), two tables and -DMAXCRASH=0: 177,656, 270,498 and 468,638 states.
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
#ifdef MOVES
#define MOVING
#define PART(k) at[part[k]]
#else
#define PART(k) (k == 0 -> 0 : 1)
#endif
#define J(n, k) ((n)*3 + (k))

/* ---- the database ---- */
byte incarnation[N]; /* table fence */
bool dexp[N];        /* node.until has passed */
byte own[2];         /* table lease */
bool left[3];        /* part rows */
bool home_left;      /* the report part of message 0 */
bool content[2];
#ifdef MOVING
#ifndef MAXTABLE
#define MAXTABLE 3
#endif
#define HOME     1
byte part[3];        /* of a recipient: 0, or 1, which is made by a move */
byte at[2];          /* of a part: its partition */
byte made_by[2];     /* .. and the number of the table that has routed it */
byte parts_left;     /* of the report part */
bool to_report;      /* likewise: recipient 1 has been given to it */
byte highest;        /* number of a table that was put in force */
#else
#define HOME 0
#endif

/* ---- on the wire: settle requests (per job), and a request to close message 0 ---- */
byte settle_inc[N * 3]; /* 0: none, else the incarnation it was sent with */
byte close_inc[N];
#ifdef MOVING
byte move_inc[N * 2], move_by[N * 2]; /* of a part, and the table that it goes by */
bool close_reports[N], close_ends[N]; /* what its owner has read of the report part */
#endif
#ifdef NOLOCK
byte passed[N * 3]; /* checked, not written yet */
#endif

/* ---- nodes ---- */
bool alive[N], lexp[N];
byte inc[N];            /* which incarnation it believes to be; 0: none */
mtype = { NO, VALID, STALE };
mtype renewal[N];       /* a renewal was made whose answer is under way: still good for us or not */
bool mine[N * 2];       /* believes to own */
#ifdef MOVING
byte table[N];          /* of routes that it has loaded */
#endif
byte job[N * 3];        /* 0 idle, 1 loaded, 2 handed to an agent, 3 past the last check, 4 dot sent */

/* ---- what an observer sees ---- */
byte kills, crashes, releases;
bool begun;
bool late[N * 3];       /* had passed its check when the partition was lost */
byte copies[3], losses[3];
#ifdef MOVING
byte moves[2], reports;
#endif

#define owner(n, p) (own[p] == n && incarnation[n] == inc[n])
#ifdef MOVING
#define message_left(m) (left[0] || left[1])
#else
#define message_left(m) (m == 0 -> (left[0] || left[1]) : left[2])
#endif
#define all_done (!left[0] && !left[1] && !left[2] && !home_left && !content[0] && !content[1])

#ifdef MAXSLIP /* for liveness: a node that lives misses its renewals so often and no more */
byte slips;
#define may_slip (slips < MAXSLIP)
#define slip slips++
#else
#define may_slip true
#define slip skip
#endif

#ifdef MOVING
#define Q(n, q) ((n)*2 + (q))
/* Where a table sends a recipient. */
#if MOVES == 1
#define PLACE(t, k) (t == 1 -> 0 : (t == 2 -> 1 : (k == 0 -> 1 : 0)))
#else
#define PLACE(t, k) (t == 1 -> 0 : (t == 2 -> (k == 0 -> 0 : 1) : (k == 0 -> 1 : 0)))
#endif
#define has(q, k) (left[k] && part[k] == q)
#define any_of(q) (has(q, 0) || has(q, 1))
#define is_tried(n, q, k) (has(q, k) && (job[J(n, k)] != 0 || settle_inc[J(n, k)] != 0))
#ifdef NOPASS
#define in_no_pass(n, q) true
#else
#define in_no_pass(n, q) (!is_tried(n, q, 0) && !is_tried(n, q, 1))
#endif
#ifdef NOHOLD
#define is_held(n, k) false
#else
#define is_held(n, k) (move_inc[Q(n, part[k])] != 0)
#endif
#ifdef BALL
#define is_stale(n, q) (made_by[q] != table[n])
#else
#define is_stale(n, q) (made_by[q] < table[n])
#endif
#ifdef MOVEFIRST /* as in the code */
#define may_begin(n, k) (!is_held(n, k) && !is_stale(n, part[k]))
#else
#define may_begin(n, k) (!is_held(n, k))
#endif
#define opens(n, q) (any_of(q) && at[q] == 1 && move_inc[Q(n, q)] != 0)
#define delivers(n, k) (left[k] && PART(k) == 1 && (job[J(n, k)] >= 2 || settle_inc[J(n, k)] != 0))
#endif

#ifdef RUDE
#define quiet(n) true
#elif defined(MOVING)
#define quiet(n) (!delivers(n, 0) && !delivers(n, 1) && !close_inc[n] && !opens(n, 0) && !opens(n, 1))
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
#elif defined(MOVING) /* as it is in the tables: the owner is not looked at */
#define fence_ok(n, i, p) (incarnation[n] == i)
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
#ifdef MOVING
    if
    :: j == 1 && home_left -> to_report = true /* it is given */
    :: j == 1 && !home_left -> reports++; assert(reports == 1) /* A7 */
    :: else
    fi;
    if
    :: !any_of(part[j]) && home_left -> assert(parts_left > 0); parts_left--
    :: !any_of(part[j]) && !home_left -> assert(content[0] && !message_left(0)); content[0] = false /* A4 */
    :: else
    fi
#else
    if
    :: j == 2 -> assert(content[1]); content[1] = false /* A4 */
    :: else
    fi
#endif
}

#ifdef MOVING
/* Part q of node n, in one transaction: it goes, as what it is; or recipient 1 leaves it as a part of
 * its own, which is one more of the message, or the first of a message that is divided now. */
inline write_move(n, q)
{
    assert(own[at[q]] == n && incarnation[n] == move_inc[Q(n, q)]); /* A1 */
    assert(moves[q] < MAXTABLE - 1); /* A6 */
    moves[q]++;
    made_by[q] = move_by[Q(n, q)];
    if
    :: has(q, 0) && has(q, 1) && PLACE(made_by[q], 0) != PLACE(made_by[q], 1) ->
        part[1] = 1;
        at[0] = PLACE(made_by[0], 0);
        at[1] = PLACE(made_by[0], 1);
        made_by[1] = made_by[0];
        moves[1] = moves[0];
        parts_left = (home_left -> parts_left : 1);
        home_left = true;
#ifndef NOCOUNT
        parts_left++
#endif
    :: else -> at[q] = (has(q, 0) -> PLACE(made_by[q], 0) : PLACE(made_by[q], 1))
    fi
}
#endif

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

#ifdef MOVING
/* A delivery in short: what is between its claim and its last look, and between its dot and its
 * result's way to the database, is looked at without moves. */
#define DELIVERED(n, k)                                                                              \
    :: d_step { alive[n] && mine[n * 2 + PART(k)] && left[k] && job[J(n, k)] == 0 && !settle_inc[J(n, k)] && \
                good(n) && may_begin(n, k) ->                                                        \
           assert(owner(n, PART(k))); /* A2 */                                                       \
           job[J(n, k)] = 3 }                                                                        \
    :: d_step { alive[n] && job[J(n, k)] == 3 ->                                                     \
           assert(owner(n, PART(k)) || late[J(n, k)]); /* A3, A5 */                                  \
           late[J(n, k)] = false;                                                                    \
           copies[k]++;                                                                              \
           assert(copies[k] <= 1 + losses[k]); /* A3 */                                              \
           job[J(n, k)] = (inc[n] != 0 -> 4 : 0);                                                    \
           settle_inc[J(n, k)] = inc[n] }
#ifdef KEEPHOLD
#define refused(n, q) skip
#else
#define refused(n, q) move_inc[Q(n, q)] = 0; move_by[Q(n, q)] = 0
#endif
#define MOVE(n, q)                                                                                   \
    :: d_step { alive[n] && any_of(q) && mine[n * 2 + at[q]] && is_stale(n, q) && in_no_pass(n, q) && \
                move_inc[Q(n, q)] == 0 ->                                                            \
           move_inc[Q(n, q)] = inc[n];                                                               \
           move_by[Q(n, q)] = table[n] }
#define MOVED(n, q)                                                                                  \
    :: d_step { move_inc[Q(n, q)] ->                                                                 \
           if                                                                                        \
           :: fence_ok(n, move_inc[Q(n, q)], at[q]) && any_of(q) -> write_move(n, q);                \
                  move_inc[Q(n, q)] = 0; move_by[Q(n, q)] = 0                                        \
           :: else -> refused(n, q)                                                                  \
           fi }
#endif

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
           if :: job[J(n, 0)] == 1 && PART(0) == 1 -> job[J(n, 0)] = 0 :: else fi;
           if :: job[J(n, 1)] == 1 && PART(1) == 1 -> job[J(n, 1)] = 0 :: else fi;
           if :: job[J(n, 2)] == 1 && PART(2) == 1 -> job[J(n, 2)] = 0 :: else fi }

#ifndef MOVING
    /* ---- deliveries ---- */
    DELIVERY(n, 0, 0)
    DELIVERY(n, 1, 1)
    DELIVERY(n, 2, 1)

    /* ---- the home of message 0 [closes] it ---- */
    :: d_step { alive[n] && mine[n * 2] && home_left && !left[0] && !left[1] && close_inc[n] == 0 ->
           close_inc[n] = inc[n] }
#else
    DELIVERED(n, 0)
    DELIVERED(n, 1)

    /* ---- a table of routes: that of the others, or one that none has had ---- */
    :: d_step { alive[n] && table[n] < highest -> table[n] = highest }
    :: d_step { alive[n] && highest < MAXTABLE -> highest++; table[n] = highest }

    /* ---- [moves] what an older one has routed, at the end of its pass ---- */
    MOVE(n, 0)
    MOVE(n, 1)

    /* ---- the home of message 0 reports what was given to it, and [closes] it ---- */
    :: d_step { alive[n] && mine[n * 2 + HOME] && home_left && (to_report || parts_left == 0) && close_inc[n] == 0 ->
           close_inc[n] = inc[n];
           close_reports[n] = to_report;
           close_ends[n] = (parts_left == 0) }
#endif

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

/* The database takes requests from the wire in any order, each as one transaction: that of a part
 * that ends [settles]. */
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
#ifndef MOVING
    SETTLE(n, 2)
#endif
#ifdef MOVING
    MOVED(n, 0)
    MOVED(n, 1)
    :: d_step { close_inc[n] ->
           if
           :: fence_ok(n, close_inc[n], HOME) && home_left ->
               assert(own[HOME] == n); /* A1 */
               if
               :: close_reports[n] -> assert(to_report); to_report = false; reports++; assert(reports == 1) /* A7 */
               :: else
               fi;
               if
               :: close_ends[n] ->
                   assert(content[0] && parts_left == 0 && !message_left(0) && !to_report && reports == 1); /* A4, A7 */
                   content[0] = false; home_left = false
               :: else
               fi
           :: else
           fi;
           close_inc[n] = 0; close_reports[n] = false; close_ends[n] = false }
#else
    :: d_step { close_inc[n] ->
           if
           :: fence_ok(n, close_inc[n], 0) && home_left ->
               assert(own[0] == n && content[0] && !left[0] && !left[1]); /* A4 */
               content[0] = false; home_left = false
           :: else
           fi;
           close_inc[n] = 0 }
#endif
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
#ifdef MOVING
        left[0] = true; left[1] = true; content[0] = true;
        highest = 1; table[0] = 1; table[1] = 1; made_by[0] = 1; made_by[1] = 1;
#if MOVES == 3
        home_left = true; parts_left = 1;
#endif
#define ONLY0
#elif !defined(ONLY1)
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
