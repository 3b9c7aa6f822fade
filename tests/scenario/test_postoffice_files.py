"""Files of a POSTOFFICE that are hashed, damaged or many, with the whole daemon."""

import os
import unittest

import scheduler
import sluice


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.front = scheduler.Scheduler('*/* interval=1m\nsmtp/* command="script -c $channel"\n')
        self.addCleanup(self.front.close)
        self.box = self.front.box
        self.front.agent.does("ok3")

    def empty(self, directory="transport"):
        return not self.box.names(directory)

    def drained(self):
        sluice.eventually(lambda: self.empty() and self.empty("queue"), "all is delivered", detail=self.front.log)

    def corrupt(self):
        return self.front.sluice("queue", "--state", "corrupt").stdout

    def test_files_are_moved_into_two_levels_of_directories(self):
        self.front.agent.does("sleep 1 ok3")
        mail = self.box.message(["smtp a.test u@a.test"], name="90417")
        self.front.start("-HH")
        sluice.eventually(lambda: self.box.names() == ["T/P/90417"], "it is moved", detail=self.front.log)
        self.assertEqual(self.box.names("queue"), ["T/P/90417"])
        self.drained()
        self.assertEqual(self.front.agent.jobs()[0][0], "T/P/90417")
        self.assertEqual(mail.path, "90417")

    def test_a_damaged_file_stops_nobody_and_goes_on_when_it_is_repaired(self):
        good = self.box.control_text("500", ["smtp a.test u@a.test"])
        self.box.put("500", good[:-20], "env-end\n\nHello.\n")
        self.front.start()
        self.box.notify(self.box.message(["smtp a.test v@a.test"]).path)
        sluice.eventually(lambda: self.box.names() == [".damaged.500"], "the other one goes", detail=self.front.log)
        self.assertIn("the end of the file is missing", self.front.log())
        self.assertIn("500", self.corrupt())
        why = self.front.sluice("why", "500").stdout
        self.assertIn("quarantined: the end of the file is missing", why)
        self.assertNotIn("dealt with; what is left", why)
        self.front.stop()
        self.front.start()
        sluice.eventually(lambda: "500" in self.corrupt(), "it is known after a restart", detail=self.front.log)
        path = os.path.join(self.box.transport, ".damaged.500")
        with open(path, "w", encoding="ascii") as file:
            file.write(good)
        os.rename(path, os.path.join(self.box.transport, "500"))
        self.front.stop()
        self.front.start()
        self.drained()

    def test_many_files_are_found_without_being_announced(self):
        self.front.agent.does("ok3")
        self.box.many(300, levels=1, hosts=5)
        self.front.start("-H")
        self.drained()
        self.assertEqual(len(self.front.agent.jobs()), 300)


if __name__ == "__main__":
    unittest.main()
