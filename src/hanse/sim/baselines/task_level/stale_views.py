"""Broker's view of the league: the nodes it believes free, by cluster and logical partition."""

from random import Random

from hanse.sim.replay.run_records import ReplaySettings


class PartitionLayout:
    """Nodes numbered cluster by cluster, each cluster cut into one partition per broker, all nearly equal."""

    def __init__(self, settings: ReplaySettings) -> None:
        nodes, clusters, brokers = settings.nodes, settings.clusters, settings.brokers
        self.clusters = clusters
        self.brokers = brokers
        self.parts: list[list[int]] = []
        """Nodes of each partition; partition ``cluster * brokers + owner``."""
        self.part_of = [0] * nodes
        self.cluster_of = [0] * nodes
        for cluster in range(clusters):
            low, high = nodes * cluster // clusters, nodes * (cluster + 1) // clusters
            for owner in range(brokers):
                first = low + (high - low) * owner // brokers
                past = low + (high - low) * (owner + 1) // brokers
                self.parts.append(list(range(first, past)))
                for node in range(first, past):
                    self.part_of[node] = cluster * brokers + owner
                    self.cluster_of[node] = cluster


class StaleView:
    """Believed free nodes per partition as lists with an index: a random one is taken, and any one removed,
    in constant time."""

    def __init__(self, layout: PartitionLayout, broker: int, random: Random) -> None:
        self.draw = random.random
        self.part_of = layout.part_of
        self.free = [list(part) for part in layout.parts]
        self.place = [0] * len(layout.part_of)
        """Position of a node in its partition's list, -1 = not believed free."""
        for part in layout.parts:
            for index, node in enumerate(part):
                self.place[node] = index
        self.own = [cluster * layout.brokers + broker for cluster in range(layout.clusters)]
        mine = set(self.own)
        self.foreign = [part for part in range(len(self.free)) if part not in mine]
        self.total = len(self.place)

    def add(self, node: int) -> None:
        """Mark a node as believed free."""
        if self.place[node] < 0:
            nodes = self.free[self.part_of[node]]
            self.place[node] = len(nodes)
            nodes.append(node)
            self.total += 1

    def remove(self, node: int) -> None:
        """Mark a node as believed taken."""
        index = self.place[node]
        if index >= 0:
            nodes = self.free[self.part_of[node]]
            last = nodes.pop()
            if last != node:
                nodes[index] = last
                self.place[last] = index
            self.place[node] = -1
            self.total -= 1

    def take_from(self, part: int) -> int:
        """Take a random free node of a partition that has one."""
        nodes = self.free[part]
        node = nodes[int(self.draw() * len(nodes))]
        self.remove(node)
        return node

    def match_in_order(self) -> int:
        """Take a node of the first own partition that has one, else of the first foreign one; -1 = none."""
        if self.total:
            free = self.free
            for part in self.own:
                if free[part]:
                    return self.take_from(part)
            for part in self.foreign:
                if free[part]:
                    return self.take_from(part)
        return -1

    def match_random(self) -> int:
        """Take a node in the same way, with a random start in each round of partitions; -1 = none."""
        if self.total:
            free = self.free
            for parts in (self.own, self.foreign):
                if parts:
                    turn = int(self.draw() * len(parts))
                    for index in range(turn - len(parts), turn):
                        if free[parts[index]]:
                            return self.take_from(parts[index])
        return -1
