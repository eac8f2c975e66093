# SPDX-License-Identifier: Apache-2.0
"""An instance of inventoryd as a stage has it, and the requests that it is sent."""
from instance import Instance, Request
from waiting import PATIENCE_S

ITEM = "phone"


class Sale(Request):
    """A buyer's request; or of one who only asks what is there, or what became of an accepted sale."""

    def __init__(self, instance, name, query="", buys=True, accepted=None):
        self.buys, self.accepted = buys, accepted
        method, path = ("POST", f"/inventory/{ITEM}/sale{query}") if buys else ("GET", f"/inventory/{ITEM}")
        if accepted:
            path = f"/sales/{accepted.body['id']}?wait={PATIENCE_S}"
        super().__init__(instance, name, method, path)

    @property
    def answer(self):
        return "202: accepted" if self.status == 202 else super().answer

    @property
    def success(self):
        if not self.buys and not self.accepted:
            return f"{self.body['stock']} in stock"
        return f"sold unit {self.body['unit']}, {self.body['left']} left"


class ShopInstance(Instance):
    def __init__(self, stage, name, ttl_ms, flags, lock_flags):
        policy = [word for setting, value in stage.settings.items() for word in (f"--{setting.replace('_', '-')}", value)]
        super().__init__(stage, stage.inventoryd, name, ttl_ms, [
            "--redis", stage.stock_url, *lock_flags, "--lock-service", "stage", "--write", stage.write, *policy,
            "--check-hold", "on" if stage.check_hold else "off",
            "--fail-fast-ms", "600000",  # when an outage ends is the scenario's business
            *flags])

    def sell(self, query=""):
        """A buyer asks this instance; the sale goes on by itself."""
        return self.stage.add_request(Sale(self, self.stage.new_name(self), query))

    def read(self):
        """One who does not buy asks what is there."""
        return self.stage.add_request(Sale(self, self.stage.new_name(self), buys=False))

    def ask_outcome(self, sale):
        """The buyer of an accepted sale asks what became of it."""
        return self.stage.add_request(Sale(self, self.stage.new_name(self), buys=False, accepted=sale))

    def waiting(self):
        """How many of its sales wait for their lock."""
        return self.metric("inventoryd_sales_waiting")

    def in_flight(self):
        """How many of its sales are not answered yet."""
        return self.metric("inventoryd_sales_in_flight")
