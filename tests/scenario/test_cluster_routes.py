"""Nodes of a cluster that route mail anew: which of them go by which tables, and where the mail goes then."""

import os
import re

import cluster
import postgres
import sluice


@postgres.needed()
class Routes(sluice.TestCase):
    def cluster(self, names, **parameters):
        """Nodes, each with a file of routes of its own, which is empty."""
        c = cluster.Cluster(names, standby=False, **parameters)
        self.addCleanup(c.close)
        for node in c.nodes.values():
            node.write_config(transport_maps="texthash:" + node.directory + "/routes")
            self.route(node, "")
        return c

    def route(self, node, routes):
        path = node.directory + "/routes"
        with open(path, "w") as f:
            f.write(routes)
        os.chmod(path, 0o644)

    def reload(self, node):
        self.assertEqual(node.cli("reload").returncode, 0)

    def tables(self, c):
        """The numbers of their tables, in order of names."""
        return c.server().ask("SELECT string_agg(route::text, ' ' ORDER BY name) FROM sluice.node")

    def test_the_latest_tables_to_be_loaded_are_in_force(self):
        c = self.cluster(("anna", "bert"))
        anna, bert = c.nodes["anna"], c.nodes["bert"]
        c.start()
        self.eventually(lambda: self.tables(c) == "1 1")
        self.route(anna, "a.example smtp:[127.0.0.2]\n")
        self.reload(anna)
        self.eventually(lambda: self.tables(c) == "2 1")
        listed = {line.split()[0]: line for line in c.run("node", "list", c.url()).splitlines()}
        self.assertNotIn("(old)", listed["anna"])
        self.assertIn("(old)", listed["bert"])
        self.reload(bert)  # those that it has, which are not the latest to have been loaded before
        self.eventually(lambda: self.tables(c) == "2 3")
        self.route(bert, "a.example smtp:[127.0.0.2]\n")
        self.reload(bert)
        self.eventually(lambda: self.tables(c) == "4 4")
        # A start changes nothing: the operator may have forgotten a file there.
        self.assertEqual(bert.stop(), 0)
        self.route(bert, "")
        bert.start()
        self.eventually(lambda: self.tables(c) == "4 3")
        self.eventually(lambda: "its routing tables (number 3) are not those in force (4)" in bert.log())
        self.assertEqual(bert.log().count("are not those in force"), 1)
        self.reload(bert)
        self.eventually(lambda: self.tables(c) == "4 5")
