import time
from test_page_faults import *
from test_page_faults import visit, port, servers, context
import test_page_faults as f
import os

def test_tab(visit, port):
    page = visit()
    start_race(page, "Story: A slow boat went slowly", tokens=900)
    wait_for(lambda: readiness(port)["runs"] == 1)
    page.wait_for_function(IS_ON)
    t=time.monotonic()
    page.close()
    wait_for(lambda: readiness(port)["runs"] == 0)
    print("FREED", time.monotonic()-t)

def test_cut(visit, port):
    f.test_a_race_goes_on_where_something_on_the_way_cut_it_off(visit, port)
