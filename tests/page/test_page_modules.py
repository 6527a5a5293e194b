"""The page's logic without its views: each case runs a function of a module in the browser."""
import unittest

import fake_coordinator
import fleet_data
from browser import PageTest


class Modules(PageTest):
    """They share one tab, because no case changes the page."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.coordinator = fake_coordinator.FakeCoordinator(fleet_data.FleetData())
        cls.addClassCleanup(cls.coordinator.stop)
        cls.page = cls.browser.new_page()
        cls.page.goto(cls.coordinator.url)

    def call(self, module, body, argument=None):
        """Returns what the JavaScript `body` returns, with the module `m` and the argument `a`."""
        return self.page.evaluate(f"async a => {{ const m = await import('./js/{module}'); {body} }}", argument)

    def test_texts_lose_terminal_sequences_and_show_hidden_marks(self):
        clean = lambda text: self.call("text.js", "return m.clean(a);", text)
        self.assertEqual(clean("\x1b[1;31mred\x1b[0m and \x1b]8;;http://x\x07link\x1b]8;;\x07"), "red and link")
        self.assertEqual(clean("a\u202eb\u200f\x00\x7f\u0085"), "a⟨U+202E⟩b⟨U+200F⟩\u2400\u2421⟨U+0085⟩")
        self.assertEqual(clean("日本語 🚀 👩\u200d🔧 שלום\t\n"), "日本語 🚀 👩\u200d🔧 שלום\t\n")
        self.assertLess(len(clean("x" * 100_000)), 20_010)
        self.assertEqual(self.call("text.js", "return m.rankRanges([0, 1, 2, 5, 7, 8]);"), "0-2, 5, 7-8")

    def test_lines_of_ranks_are_joined_collapsed_and_bounded(self):
        lines = self.call("log_lines.js", """
          const log = new m.LogLines();
          const offsets = {};
          const add = (rank, ns, text, attempt = 1) => {
            const offset = offsets[`${attempt} ${rank}`] ?? 0;
            offsets[`${attempt} ${rank}`] = offset + text.length;
            log.add({ attempt, rank, offset, bytes: text.length, unix_ns: ns, text });
          };
          add(0, 1e9, "be");
          add(1, 1e9, "gin\\nsame\\n");
          add(0, 1.2e9, "gin\\nsame\\n");
          add(3, 1.3e9, "same\\n"); add(2, 1.4e9, "same\\n"); add(2, 1.5e9, "same\\n");
          add(5, 9e9, "same\\n");
          add(6, 9e9, "same\\n", 2);
          add(7, 10e9, "10%\\r50%\\r100%\\r\\nno break");
          // The stream begins again: the first part is known, and the second one in part.
          log.add({ attempt: 1, rank: 7, offset: 0, bytes: 8, unix_ns: 1, text: "10%\\r50%\\r" });
          log.add({ attempt: 1, rank: 7, offset: 8, bytes: 19, unix_ns: 10e9, text: "100%\\r\\nno break, but" });
          log.finish();
          return log.lines.map((line) => [line.attempt, line.ranks, line.text]);""")
        self.assertEqual(lines, [[1, [1], "gin"], [1, [0, 1, 2, 3], "same"], [1, [0], "begin"], [1, [2], "same"], [1, [5], "same"], [2, [6], "same"], [1, [7], "100%"], [1, [7], "no break, but"]])
        # Output between two parts is missing: the page was hidden.
        self.assertEqual(self.call("log_lines.js", """
          const log = new m.LogLines();
          log.add({ attempt: 1, rank: 0, offset: 0, bytes: 9, unix_ns: 1, text: "one\\nbegin" });
          log.add({ attempt: 1, rank: 0, offset: 500, bytes: 8, unix_ns: 9e9, text: "end\\ntwo\\n" });
          return log.lines.map((line) => line.text);"""), ["one", "begin", "⟨491 bytes are not shown⟩", "end", "two"])
        held, dropped = self.call("log_lines.js", """
          const log = new m.LogLines();
          for (let i = 0; i < 60000; ++i) log.add({ attempt: 1, rank: 0, offset: i * 20, bytes: 20, unix_ns: i * 1e7, text: `line ${i}\\n` });
          log.add({ attempt: 1, rank: 0, offset: 2e6, bytes: 1e6, unix_ns: 1, text: "x".repeat(1e6) });
          return [log.lines.length + Math.max(...log.lines.map((line) => line.text.length)), log.dropped];""")
        self.assertLess(held, 20_000 * 9 / 8 + 8_200)
        self.assertGreater(dropped, 30_000)

    def test_curves_stay_bounded_and_break_between_attempts(self):
        size, first, last = self.call("series.js", """
          const columns = m.emptyColumns();
          for (let part = 0; part < 40; ++part) m.merge(columns, m.columnsOf(Array.from({ length: 1000 }, (_, i) => ({ unix_ns: part * 1000 + i + 1, attempt: 1, loss: i }))));
          m.merge(columns, m.columnsOf([{ unix_ns: 39999, attempt: 1, loss: 7 }]));
          return [columns.unix_ns.length, columns.unix_ns[0], m.lastTime(columns)];""")
        self.assertLessEqual(size, 8192)
        self.assertEqual((first, last), (1, 40_000))
        # A live point arrives before the earlier ones; then all at once, more than are stored.
        self.assertEqual(self.call("series.js", "const c = m.emptyColumns(); m.merge(c, m.columnsOf([{unix_ns: 9, loss: 9}])); m.merge(c, m.columnsOf([{unix_ns: 1, loss: 1}, {unix_ns: 5, loss: 5}, {unix_ns: 9, loss: 8}])); return [c.unix_ns, c.loss];"), [[1, 5, 9], [1, 5, 9]])
        self.assertLessEqual(self.call("series.js", "const c = m.emptyColumns(); m.merge(c, m.columnsOf(Array.from({ length: 100000 }, (_, i) => ({ unix_ns: i + 1 })))); return c.unix_ns.length;"), 8192)
        times, values = self.call("series.js", "const c = m.emptyColumns(); m.merge(c, m.columnsOf([{unix_ns: 1e9, attempt: 1, loss: 1}, {unix_ns: 3e9, attempt: 2, loss: 2}])); return m.curve(c, 'loss');")
        self.assertEqual((times, values), ([1, 2, 3], [1, None, 2]))
        self.assertEqual(self.call("series.js", "return m.smoothed([4, 4, null, 8], 0.9);"), [4, 4, None, 8])

    def test_stacks_are_merged_by_outer_frames(self):
        tree = self.call("components/stack_tree.js", """
          const frames = (...names) => names.map((name) => ({ text: name }));
          const root = m.mergeStacks([{ ranks: [[0, 1], [3, 3]], frames: frames("wait", "step", "main") }, { ranks: [[2, 2]], frames: frames("read", "step", "main") }, { ranks: [[4, 9]], frames: frames("wait", "step", "main") }]);
          const fork = m.firstFork(root);
          return [root.count, root.ranks, fork.text, fork.children.map((child) => [child.text, child.count, child.ranks])];""")
        self.assertEqual(tree, [10, [[0, 9]], "step", [["wait", 9, [[0, 1], [3, 9]]], ["read", 1, [[2, 2]]]]])

    def test_each_rank_has_its_own_cell_in_every_layout(self):
        for body in ("m.layOutByAxes(a.ranks, 8, a.axes, ['data'], 2)", "m.layOutByAxes(a.ranks, 8, a.axes, [], 2)", "m.layOutByAxes(a.ranks, 8, a.axes, ['tensor', 'data'], 2)", "m.layOutByNode(a.ranks, 8, a.switches, 2)", "m.layOutInOrder(a.ranks, 2)",
                     "m.layOutByNode(a.ranks - 3, 8, [], 2)", "m.layOutByNode(a.ranks, 8, a.nodes, 2)",
                     "m.layOutByAxes(a.ranks, 8, a.axes, ['data', 'pipeline', 'tensor'], 2)", "m.layOutByAxes(a.ranks, 8, a.axes, [], 0.1)"):
            with self.subTest(body):
                placement = self.coordinator.data.placement()
                ranks, cells, within = self.call("mesh/layout.js", f"const l = {body}; const seen = new Set(); let within = true; for (let r = 0; r < l.x.length; ++r) {{ seen.add(l.y[r] * l.width + l.x[r]); within &&= l.x[r] >= 0 && l.x[r] < l.width && l.y[r] >= 0 && l.y[r] < l.height && l.owner[l.y[r] * l.width + l.x[r]] === r; }} return [l.x.length, seen.size, within];", placement)
                self.assertEqual((ranks, within), (cells, True))

    def test_coordinates_follow_degrees_within_and_across_nodes(self):
        axes = [{"name": "data", "size": 6, "nodes": 3, "local": 2}, {"name": "tensor", "size": 8, "nodes": 2, "local": 4}]
        at = self.call("mesh/layout.js", "return Array.from({ length: 48 }, (_, rank) => m.coordinates(rank, a, 8));", axes)
        self.assertEqual(at[0:9], [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3], [0, 4]])
        self.assertEqual(len({tuple(one) for one in at}), 48)

    def test_command_lines_are_read_as_a_shell_does(self):
        words = lambda line: self.call("command_line.js", "try { return m.splitWords(a); } catch (error) { return error.message; }", line)
        self.assertEqual(words("a 'b $c' \"d \\\"e\\\" f\" g\\ h '' \\\n i"), ["a", "b $c", 'd "e" f', "g h", "", "i"])
        for line in ("cd x && python3 t.py", "python3 t.py 2>&1 | tee log", "python3 t.py $X", 'python3 t.py "$X"', "python3 `which t`"):
            self.assertRegex(words(line), "needs a shell")
        self.assertEqual(words('a "b'), 'The quote " is not closed.')
        awkward = ["plain", "with space", "it's", "$HOME", "", "a;b", "é", "--x=1,2", "*"]
        self.assertEqual(self.call("command_line.js", "return m.splitWords(a.map(m.quoted).join(' '));", awkward), awkward)
        recognized = lambda line: self.call("command_line.js", "return m.recognize(a);", line)
        program = lambda line: (recognized(line)["spec"], recognized(line)["ignored"])
        self.assertEqual(program("torchrun --standalone --nproc_per_node=4 -m pkg.train --x 1"), ({"command": ["python3", "-m", "pkg.train", "--x", "1"], "environment": {}, "ranks_per_node": 4}, ["--standalone"]))
        self.assertEqual(program("torchrun --nnodes 1:4 --nproc-per-node gpu --no-python ./bin -v"), ({"command": ["./bin", "-v"], "environment": {}}, ["--nnodes 1:4", "--nproc-per-node gpu"]))
        self.assertEqual(program("A=b python3 -m torch.distributed.run --nproc-per-node 2 t.py"), ({"command": ["python3", "t.py"], "environment": {"A": "b"}, "ranks_per_node": 2}, []))
        self.assertEqual(program("muster submit --ranks 4 --name x --env A=b=c --spares=2 --restarts 0 --no-check -- python3 t.py"),
                         ({"command": ["python3", "t.py"], "environment": {"A": "b=c"}, "ranks_per_node": 4, "name": "x", "spares": 2, "restarts_max": 0}, ["--no-check"]))
        self.assertEqual(program("python3 my_maxtext_eval.py")[0]["command"], ["python3", "my_maxtext_eval.py"])
        self.assertEqual(recognized("XLA_FLAGS=--x python3 MaxText/train.py a.yml")["command"], "muster submit python3 MaxText/train.py a.yml --env XLA_FLAGS=--x")
        self.assertEqual(recognized("muster submit configs/base.yml steps=3")["dialect"], "Muster")

    def test_goodput_of_intervals_ignores_restarts_of_the_sums(self):
        history = {"columns": {"unix_ns": [0, 1e9, 2e9, 3e9], "wall_seconds": [0, 10, 2, 12], "productive_seconds": [0, 9, 1, 10]}, "losses": {"hang": [0, 1, 0, 1]}}
        intervals = self.call("goodput_history.js", "return m.intervalsOf(a, 10).map((one) => [one.wall, one.productive, one.losses]);", history)
        self.assertEqual(intervals, [[10, 9, {"hang": 1}], [0, 0, {}], [10, 9, {"hang": 1}]])
        self.assertEqual(self.call("goodput_history.js", "return m.intervalsOf(a, 1).map((one) => [one.wall, one.productive, one.losses]);", history), [[20, 18, {"hang": 2}]])
        folded = self.call("goodput_history.js", "return m.foldCauses([{ losses: { a: 5, b: 3, c: 1, d: 1 } }], 2);")
        self.assertEqual(folded, [{"losses": {"a": 5, "b": 3, "other": 2}}])

    def test_numbers_have_units_that_fit(self):
        self.assertEqual(self.call("format.js", "return [0.000008, 0.0024, 0.85, 1.314, 26.44, 59.97, 185, 7980, 446400, -3, null].map(m.duration);"), ["8 µs", "2.4 ms", "850 ms", "1.31 s", "26.4 s", "1m 00s", "3m 05s", "2h 13m", "5d 4h", "-3.00 s", "–"])
        self.assertEqual(self.call("format.js", "return [[12500, 0, null].map(m.count), [1.2e-7, 2.34567, 12345.6].map(m.figure), [999, 999950, 1.37e7, 15500].map(m.compact), [80 * 2 ** 30, 512].map(m.bytes)];"),
                         [["12,500", "0", "–"], ["1.20e-7", "2.346", "12,346"], ["999", "1.0M", "13.7M", "15.5k"], ["80.0 GiB", "512 B"]])
        ticks = self.call("format.js", "const at = (from, step) => [0, 1, 2, 3].map((i) => from + i * step); return [at(1.314, 0.002).map((v) => m.durationTick(v, 0.002)), at(0.411, 0.001).map((v) => m.percentTick(v, 0.001)), at(2.5e-4, 1e-5).map((v) => m.numberTick(v, 1e-5)), at(4.1e6, 2e4).map((v) => m.compactTick(v, 2e4))];")
        for labels in ticks:
            self.assertEqual(len(set(labels)), 4, labels)

    def test_groups_of_one_name_are_not_mixed(self):
        ranks = [{"rank": rank, "groups": [{"name": "tensor", "id": 1 + rank // 2, "started": 100 - 10 * (rank // 2), "completed": 99 - 10 * (rank // 2)}]} for rank in range(4)]
        ranks += [{"rank": rank, "groups": [{"name": "data", "id": 9, "started": 7 - (rank == 300), "completed": 6}]} for rank in range(100, 400)]
        states = lambda key, suspect: self.call("components/collectives.js", f"return m.rowsOf(a, '{key}', {suspect}).map((row) => [row.rank, row.state]);", ranks)
        self.assertEqual(states("tensor 1", -1), [[0, "waits"], [1, "waits"]])
        self.assertEqual(states("tensor 2", -1), [[2, "waits"], [3, "waits"]])
        self.assertEqual(states("data 9", 150)[:3], [[150, "waits"], [300, "behind"], [100, "waits"]])

    def test_events_change_the_list_of_jobs(self):
        rows = self.call("live.js", """
          m.applySnapshot({ fleet: { unix_ns: 1, open_incidents: 2 }, jobs: [{ id: 1, name: "a", state: "QUEUED" }, { id: 2, name: "b", state: "RUNNING" }], more: true });
          m.applyDelta({ fleet: { unix_ns: 2 }, jobs: [{ id: 1, state: "RUNNING" }, { id: 3, name: "c", state: "QUEUED" }], removed: [2] });
          return [m.live.rows, m.live.fleet, m.live.more];""")
        self.assertEqual(rows, [[{"id": 3, "name": "c", "state": "QUEUED"}, {"id": 1, "name": "a", "state": "RUNNING"}], {"unix_ns": 2, "open_incidents": 2}, True])

    def test_group_in_which_ranks_wait_is_shown_first(self):
        # In the first group a rank is behind, but no other waits for it.
        groups = lambda behind: [{"name": "tensor", "id": 1, "started": 9 - behind, "completed": 9 - behind}, {"name": "data", "id": 2, "started": 7 - behind, "completed": 6}]
        ranks = [{"rank": rank, "groups": groups(rank == 2)} for rank in range(3)]
        self.assertEqual(self.call("components/collectives.js", "return m.mainGroup(a, 2);", ranks), "data 2")
        self.assertEqual(self.call("components/collectives.js", "return m.mainGroup(a, 2);", []), "")

    def test_remarks_and_colours_need_reported_values(self):
        make = "const f = (v) => Float32Array.from(v); const ranks = (columns) => ({ count: 4, ranksPerNode: 2, columns });"
        remarks = lambda columns: self.call("mesh/rank_details.js", f"{make} return m.remarksOf(ranks({columns}));")
        self.assertEqual(remarks("{ step: f([-1, -1, -1, -1]), progress_age: f([NaN, NaN, NaN, NaN]) }"), {"shown": [], "total": 0, "isKnown": False})
        self.assertEqual(remarks("{ step: f([9, 9, 9, 9]), progress_age: f([15, 16, 14, 12]), step_seconds: f([20, 20, 20, 20]) }")["total"], 0)
        self.assertEqual([one["rank"] for one in remarks("{ step: f([9, 9, 9, 9]), progress_age: f([1, 90, 1, 1]), step_seconds: f([20, 20, 20, 20]), node_state: [0, 1] }")["shown"]], [1, 2, 3])
        colouring = self.call("mesh/colours.js", f"{make} const c = m.colourRanks(ranks({{ straggler: f([0, 1, 1.4, 0.9]) }}), m.MEASURES.find((one) => one.key === 'straggler'), []); return [c.unknown, c.range.map((v) => Math.round(v * 10))];")
        self.assertEqual(colouring, [1, [9, 14]])


if __name__ == "__main__":
    unittest.main()
