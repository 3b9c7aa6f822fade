"""Whatever main.cf Postfix starts with, our queue manager starts with: odd values of all parameters of qmgr(8)."""

import re
import smtplib
import threading
import unittest

import postfix_manager
import sluice
from postfix_manager import Case

# Values with which Postfix 3.7's own queue manager starts and delivers. Round i of the test sets the i-th value of each.
TIMES = ("1h30m", "+300", "5000000", "007m", "101d", "2147483647", "24854d", "1w")
ACCEPTED = {
    "minimal_backoff_time": ("2h",) + TIMES,
    "maximal_backoff_time": ("200s", "$minimal_backoff_time") + TIMES[1:],
    "queue_run_delay": TIMES,
    "maximal_queue_lifetime": ("0", "100d", "1", "h", "+2", "2400h"),
    "bounce_queue_lifetime": ("10d", "0", "h", "100d"),
    "transport_retry_time": TIMES,
    "qmgr_clog_warn_time": ("0", "h", "s") + TIMES,
    "daemon_timeout": ("60d", "1h30m", "2147483647"),
    "qmgr_daemon_timeout": ("60d", "1h30m", "2147483647"),
    "qmgr_ipc_timeout": ("40d", "1h30m", "+60"),
    "qmgr_message_active_limit": ("1", "20000000", "2147483647", "+20", "0020"),
    "qmgr_message_recipient_limit": ("1", "2147483647", "+5", "0007"),
    "qmgr_message_recipient_minimum": ("2000000", "1", "2147483647"),
    "helpful_warnings": ("YES", "No"),
    "destination_concurrency_feedback_debug": ("No", "Yes"),
    "delay_logging_resolution_limit": ("0", "6"),
    "default_process_limit": ("200000", "1", "+7"),
    "hash_queue_depth": ("1", "17", "3"),
    "hash_queue_names": ("incoming active deferred, defer bounce  flush", "nosuch", "deferred,,defer"),
    "recipient_delimiter": ("+-", "", "$nosuch"),
    "syslog_name": ("postfix/a", "$mail_name/b", "postfix"),
    "initial_destination_concurrency": ("200000", "1", "2147483647"),
    "default_destination_concurrency_limit": ("0", "2000000", "2147483647", "1"),
    "default_destination_recipient_limit": ("0", "-1", "1000000", "-2147483648"),
    "default_destination_concurrency_positive_feedback": ("2", "1/0", "1/2000", "abc", "-1", "0.5x", "nan", "0x1", "1 / concurrency"),
    "default_destination_concurrency_negative_feedback": ("5", "1/sqrt_concurrency", "x", "1/2x", ".5"),
    "default_destination_concurrency_failed_cohort_limit": ("2000000", "-1", "0"),
    "default_destination_rate_delay": ("200d", "0", "${nosuch?7}0"),
    "default_transport_rate_delay": ("0", "1", "s"),
    "default_delivery_slot_cost": ("200000", "-1", "1"),
    "default_delivery_slot_loan": ("200000", "-3", "0"),
    "default_delivery_slot_discount": ("-1", "100", "0"),
    "default_minimum_delivery_slots": ("200000", "-1", "0"),
    "default_recipient_limit": ("-1", "0", "20000000"),
    "default_extra_recipient_limit": ("-1", "0", "20000000"),
    "default_recipient_refill_limit": ("200000", "2147483647", "1"),
    "default_recipient_refill_delay": ("2d", "1h30m", "1"),
    "smtp_destination_concurrency_limit": ("0", "2000000", "$default_destination_concurrency_limit", "+1"),
    "smtp_destination_recipient_limit": ("0", "1", "-5", "$default_destination_recipient_limit"),
    "smtp_destination_rate_delay": ("300d", "2h", "0"),
    "smtp_initial_destination_concurrency": ("500000", "1", "+2"),
    "smtp_delivery_slot_cost": ("-2", "200000", "0"),
    "smtp_minimum_delivery_slots": ("1000000", "-7"),
    "smtp_recipient_limit": ("-1", "100000000"),
    "smtp_extra_recipient_limit": ("100000000", "-1"),
    "smtp_recipient_refill_limit": ("1000000", "1"),
    "smtp_recipient_refill_delay": ("3d", "2147483647"),
    "smtp_destination_concurrency_positive_feedback": ("junk", "1/3"),
    "smtp_destination_concurrency_negative_feedback": ("7", "1/concurrency"),
    "smtp_destination_concurrency_failed_cohort_limit": ("5000000", "-1"),
    # Of transports that nothing goes by, whatever they are: Postfix reads these at the first delivery.
    "lmtp_destination_recipient_limit": ("abc", "-7", "2147483648", "$nosuch"),
    "local_destination_concurrency_limit": ("-2", "0", "2147483647"),
    "virtual_initial_destination_concurrency": ("0", "x", "1e3"),
    "nosuch_destination_concurrency_limit": ("abc", "5", "", "-1"),
    "x.y_recipient_refill_delay": ("1y", "0", "9"),
    "in_flow_delay": ("0", "1", "10"),
    "defer_transports": ("nosuch", "$nosuch", "a,b, c"),
    "info_log_address_format": ("internal", "external"),
    "default_filter_nexthop": ("", "x.test"),
    "verp_delimiter_filter": ("+=", "!=+"),
    "ipc_idle": ("200d", "1"),
}

# Values that Postfix's queue manager refuses to start with. Ours refuses them by name; it may take some.
REFUSED = {
    "minimal_backoff_time": "300 s",
    "queue_run_delay": "0",
    "maximal_queue_lifetime": "101d",
    "transport_retry_time": "1y",
    "qmgr_message_active_limit": "20k",
    "qmgr_message_recipient_minimum": "",
    "default_delivery_slot_discount": "101",
    "default_recipient_refill_limit": "0",
}


class Values(Case):
    def managed(self, manager):
        site = self.site()
        p = postfix_manager.ManagedPostfix(site.nexthop)
        p.use_manager(manager)
        self.addCleanup(p.stop)
        return p, site, dict(p.settings)

    def delivered(self, postfix, round_number):
        """Start with the values of a round, and deliver a message."""
        p, site, plain = postfix
        p.settings = {**plain, **{name: values[round_number] for name, values in ACCEPTED.items() if round_number < len(values)}}
        p.configure()
        p.start()
        with smtplib.SMTP("127.0.0.1", p.port, timeout=sluice.PATIENCE) as s:
            s.sendmail("a@src.test", ["b%d@good.test" % round_number], "Subject: x\r\n\r\nhello\r\n")
        sluice.eventually(lambda: "b%d@good.test" % round_number in site.recipients() or "fatal:" in p.log(),
                          "mail goes with the values of round %d" % round_number, detail=p.said)
        self.assertNotIn("fatal:", p.log())
        p.halt()

    def test_what_postfix_starts_with_ours_starts_with(self):
        rounds = max(len(values) for values in ACCEPTED.values())
        self.assertGreater(sum(len(values) for values in ACCEPTED.values()), 150)
        failures = []

        def play(manager):
            postfix = self.managed(manager)
            self.p = postfix[0]
            for i in range(rounds):
                try:
                    self.delivered(postfix, i)
                except BaseException as e:
                    failures.append("%s, round %d: %s\n%s" % (manager, i, e, postfix[0].said()))
                    return
        theirs = threading.Thread(target=play, args=("qmgr",))
        theirs.start()
        try:
            play("sluice-qmgr")
        finally:
            theirs.join()
        self.assertEqual(failures, [])

    def test_another_value_than_postfix_takes_is_a_warning(self):
        self.postfix(self.site().nexthop, minimal_backoff_time="2h", queue_run_delay="200d", local_delivery_slot_cost="many")
        for pattern in (r"main.cf: not set there, or by -o in master.cf: .*maximal_backoff_time less than minimal_backoff_time; it is raised"
                        r"|main.cf:\d+: minimal_backoff_time makes maximal_backoff_time less",
                        r"main.cf:\d+: queue_run_delay: found `200d', which Postfix takes; here 14w2d counts",
                        r"main.cf:\d+: local_delivery_slot_cost: found `many', which Postfix refuses; the default counts"):
            self.logged(r"qmgr\[\d+\]: warning: \S*(?:%s)" % pattern)

    def test_what_postfix_refuses_is_refused_by_name(self):
        p, site, plain = self.managed("sluice-qmgr")
        self.p = p
        for name, value in REFUSED.items():
            p.settings = {**plain, name: value}
            p.configure()
            p.start()
            self.wait(lambda: re.search(r"qmgr\[\d+\]: fatal: .*error: %s: found `%s'" % (name, value), p.log()), name + " is refused")
            p.halt()


if __name__ == "__main__":
    unittest.main()
