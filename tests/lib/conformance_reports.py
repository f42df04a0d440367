"""Do the reports of a conformance run say what each process had live at its end?"""
import os
import re

import reports


def wrong(results, folder, whole=True):
    """Lines about reports that differ from the cases' EXPECT lines.

    `results` is what run.py --json wrote; the run had CUSHION_REPORT=FOLDER/{id}.%p.json.
    `whole`: it was the whole suite, so that some case must have said what it leaves.
    """
    lines, checked = [], 0
    for case, answer in results.items():
        product = answer.get("product")
        if not product or product["status"] != "PASS":
            continue
        for record in product["records"]:
            expected = re.fullmatch(r"EXPECT live_at_exit=(\d+) bytes=(\d+)", record)
            if not expected:
                continue
            checked += 1
            count, size = map(int, expected.groups())
            path = os.path.join(folder, "%s.%d.json" % (case.replace("/", "_"), product["pid"]))
            if case.endswith("init-only"):
                if os.path.exists(path):
                    lines.append("%s: it never allocates, and left a report" % case)
                continue
            try:
                report = reports.Report(path)
            except reports.Wrong as error:
                lines.append("%s: %s" % (case, error))
                continue
            if (report.live_count, report.live_bytes) != (count, size):
                lines.append("%s: %d blocks of %d bytes are live at its end, its report says %d of %d"
                             % (case, count, size, report.live_count, report.live_bytes))
    if whole and not checked:
        lines.append("no case said what it leaves live: nothing was checked")
    return lines
