"""Quotas under any sequence of calls."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.core.storage.tenant_tier import NAMESPACE, PAGE, Tier

from lmcache_core.memory.arena import Block

QUOTAS_PAGES = {"p": 3, "q": 5, "r": 0}
PAGES = 12


class TenantMachine(RuleBasedStateMachine):
    """Random stores of several tenants and sizes, with leases: no tenant is above its quota, and no byte is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier(PAGES, default_pages=4, **QUOTAS_PAGES)
        self.held: list[list[Block]] = []
        self.number = 0

    @rule(tenant=st.sampled_from("pqrst"), count=st.integers(0, 4), pages=st.integers(1, 4), hold=st.booleans())
    def store(self, tenant: str, count: int, pages: int, hold: bool) -> None:
        others = self.bytes_of_others(tenant)
        used_before = self.used(tenant)
        blocks = self.tier.local.reserve(count, pages * PAGE, tenant=tenant)
        assert len({block.offset for block in blocks}) == len(blocks)
        lost = others - self.bytes_of_others(tenant)
        grown = self.used(tenant)
        assert lost <= len(blocks) * (pages + 3) * PAGE, "others give what is needed, and less than one piece more"
        if lost:
            assert grown <= self.quota(tenant) or not self.quota(tenant)
        if self.quota(tenant) and used_before + pages * PAGE > self.quota(tenant) and not blocks:
            assert lost == 0
        self.number += 1
        self.tier.local.commit(
            NAMESPACE, [f"{tenant} {self.number} {place}".encode() for place in range(len(blocks))], blocks
        )
        if hold:
            self.held.append(blocks)
        else:
            self.tier.arena.release(blocks)

    @rule(place=st.integers(0, 50))
    def lease(self, place: int) -> None:
        digests = list(self.tier.local._index._blocks)
        if digests:
            self.held.append(self.tier.local.lease_run([digests[place % len(digests)]]))

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0, 50))
    def release(self, place: int) -> None:
        self.tier.arena.release(self.held.pop(place % len(self.held)))

    @rule()
    def clear(self) -> None:
        self.tier.local.clear()

    def used(self, tenant: str) -> int:
        return self.tier.local.tenants.of(tenant).used_bytes

    def quota(self, tenant: str) -> int:
        return QUOTAS_PAGES.get(tenant, 4) * PAGE

    def bytes_of_others(self, tenant: str) -> int:
        return sum(self.used(other) for other in "pqrst" if other != tenant)

    @invariant()
    def no_tenant_is_above_its_quota(self) -> None:
        for tenant in "pqrst":
            assert self.used(tenant) <= self.quota(tenant) or not self.quota(tenant)

    @invariant()
    def memory_is_exact(self) -> None:
        arena = self.tier.arena
        assert arena.used_bytes + arena.free_bytes == arena.capacity_bytes
        assert sum(self.used(tenant) for tenant in "pqrst") == arena.used_bytes
        assert sum(one.chunks for one in self.tier.local.tenant_usage()) == self.tier.local.chunks

    @invariant()
    def each_tenants_order_is_part_of_the_whole_one(self) -> None:
        blocks = self.tier.local._index._blocks
        for tenant in "pqrst":
            owner = self.tier.local.tenants.of(tenant)
            if owner.order is not None:
                assert list(owner.order) == [digest for digest, block in blocks.items() if block.account is owner]

    def teardown(self) -> None:
        for blocks in self.held:
            self.tier.arena.release(blocks)
        self.tier.local.clear()
        assert self.tier.arena.used_bytes == 0


class IsolationMachine(RuleBasedStateMachine):
    """Quotas that fit into memory, chunks of one size: nobody ever loses a chunk to another."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier(10, p=2, q=3, r=5)
        self.number = 0

    @rule(tenant=st.sampled_from("pqr"), count=st.integers(0, 6), hit=st.booleans())
    def store(self, tenant: str, count: int, hit: bool) -> None:
        others = [digest for digest in self.tier.local._index._blocks if not digest.startswith(tenant.encode())]
        blocks = self.tier.local.reserve(count, PAGE, tenant=tenant)
        assert len(blocks) == min(count, {"p": 2, "q": 3, "r": 5}[tenant]), "within the quota there is always room"
        self.number += 1
        self.tier.local.commit(
            NAMESPACE, [f"{tenant} {self.number} {place}".encode() for place in range(len(blocks))], blocks
        )
        self.tier.arena.release(blocks)
        assert self.tier.local.missing(others) == []
        if hit and others:
            self.tier.arena.release(self.tier.local.lease_run(others[:1]))


TestTenants = TenantMachine.TestCase
TestTenants.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestIsolation = IsolationMachine.TestCase
TestIsolation.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


class SizesMachine(RuleBasedStateMachine):
    """Chunks of many sizes, some leased: a block is given exactly where there is a stretch that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier(PAGES)
        self.held: list[Block] = []
        self.number = 0

    @rule(pages=st.integers(1, 8), hold=st.booleans())
    def store(self, pages: int, hold: bool) -> None:
        possible = self.longest_free_stretch() >= pages
        blocks = self.tier.local.reserve(1, pages * PAGE)
        assert len(blocks) == possible
        self.number += 1
        self.tier.local.commit(NAMESPACE, [str(self.number).encode()][: len(blocks)], blocks)
        if hold:
            self.held += blocks
        else:
            self.tier.arena.release(blocks)

    @precondition(lambda self: self.held)
    @rule(place=st.integers(0, 50))
    def release(self, place: int) -> None:
        self.tier.arena.release([self.held.pop(place % len(self.held))])

    @rule(count=st.integers(1, 9), pages=st.integers(1, 3))
    def store_many(self, count: int, pages: int) -> None:
        blocks = self.tier.local.reserve(count, pages * PAGE)
        assert len(blocks) == count or self.longest_free_stretch(blocks) < pages
        self.tier.arena.release(blocks)

    def longest_free_stretch(self, also: list[Block] | None = None) -> int:
        used = {
            block.offset // PAGE + page
            for block in (*self.held, *(also or ()))
            for page in range(block.size_bytes // PAGE)
        }
        longest = run = 0
        for page in range(PAGES):
            run = 0 if page in used else run + 1
            longest = max(longest, run)
        return longest

    @invariant()
    def memory_is_exact(self) -> None:
        arena = self.tier.arena
        assert arena.used_bytes + arena.free_bytes == arena.capacity_bytes


TestSizes = SizesMachine.TestCase
TestSizes.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
