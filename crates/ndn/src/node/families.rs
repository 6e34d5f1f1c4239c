//! Every metric that an NDN router offers beyond those of the node, in the order in which they are shown.

use kaido_node::families;

families! {
    NDN_FACES = Gauge "kaido_ndn_faces" [] "Faces of the NDN router.";
    NDN_PREFIXES = Gauge "kaido_ndn_prefixes" [] "Prefixes of names that have next hops.";
    NDN_PENDING = Gauge "kaido_ndn_pending_interests" ["worker"] "Interests that wait for Data.";
    NDN_CACHED = Gauge "kaido_ndn_cached_data" ["worker"] "Data in the Content Store.";
    NDN_CACHE_OCTETS = Gauge "kaido_ndn_cache_octets" ["worker"] "Memory in use by the Content Store.";
    NDN_PACKETS = Counter "kaido_ndn_packets_total" ["worker", "direction", "kind"]
        "Interests, Data and Nacks that the forwarding has received and sent.";
    NDN_ENDED = Counter "kaido_ndn_interests_ended_total" ["worker", "how"]
        "Pending Interests that Data came for (satisfied), and that waited in vain (unsatisfied).";
    NDN_CACHE = Counter "kaido_ndn_cache_total" ["worker", "event"]
        "Interests that the Content Store has answered (hit) and not (miss), Data that it took in (inserted), gave up for others (evicted) and did not keep as it was not asked for before (refused).";
    NDN_DISK_PACKETS = Gauge "kaido_ndn_disk_packets" [] "Data that can be found on disk by the Content Store.";
    NDN_DISK_OCTETS = Gauge "kaido_ndn_disk_octets" ["of"]
        "Octets of the disk that the Content Store uses (used) and may use (capacity), and of memory for its index (index).";
    NDN_DISK_INTERESTS = Counter "kaido_ndn_disk_interests_total" ["event"]
        "Interests for what seemed to be on disk: that waited (parked), for another one's read (gathered), were answered, went on as there was nothing after all (forwarded) or as enough waited (busy).";
    NDN_DISK_DATA = Counter "kaido_ndn_disk_data_total" ["event"]
        "Data read, written, not written as the disk is too slow (overrun), given up by the index (displaced), not there any more (gone), and damaged.";
    NDN_DISK_MOVED = Counter "kaido_ndn_disk_moved_octets_total" ["direction"] "Octets of Data read from disk and written to it.";
    NDN_DISK_ERRORS = Counter "kaido_ndn_disk_errors_total" [] "Reads and writes of the Content Store's files that failed.";
    NDN_HOT = Gauge "kaido_ndn_hot_names" [] "Names that are asked for so often that all workers share them.";
    NDN_HANDED = Counter "kaido_ndn_handoff_packets_total" ["worker", "kind"]
        "Interests, Data and Nacks that a worker has handed to the worker whose they are.";
}
