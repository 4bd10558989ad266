package segmentlog.oracle;

import io.openmessaging.storage.dledger.DLedgerServer;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.dledger.DLedgerCommitLog;

/**
 * `dledger`: the stores DIR/n0, DIR/n1, … of one DLedger group, in this process. Commands are JSON lines on stdin:
 * {"cmd":"start","node":"n0"}, {"cmd":"leader"}, {"cmd":"put", message as in a plan}, {"cmd":"await"}, {"cmd":"status"},
 * {"cmd":"stop","node":"n0"}, {"cmd":"crash"}, {"cmd":"quit"}. The end of stdin is a quit. A put with "unacknowledged" does not
 * wait for the group.
 */
final class DLedgerCommand {
    private static final long PATIENCE_MS = 60_000;

    private final Map<String, Store> running = new TreeMap<>();
    private final Map<String, Object> settings;
    private final File folder;
    private Store leader;
    private long term = -1;

    private DLedgerCommand(File folder, Map<String, Object> settings) {
        this.folder = folder;
        this.settings = settings;
    }

    /** --dir DIR --ports P0,P1,P2 [--config FILE]. */
    static void run(Args args) throws Exception {
        Map<String, Object> settings = args.json("config");
        StringJoiner peers = new StringJoiner(";");
        int number = 0;
        for (String port : args.need("ports").split(",")) {
            peers.add("n" + number++ + "-127.0.0.1:" + port);
        }
        settings.put("enableDLegerCommitLog", true);
        settings.put("dLegerGroup", "oracle");
        settings.put("dLegerPeers", peers.toString());
        new DLedgerCommand(new File(args.need("dir")), settings).serve();
    }

    private void serve() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<AppendMessageResult> done = new ArrayList<>();
        int index = 0;
        String text;
        while ((text = in.readLine()) != null && !text.contains("\"quit\"")) {
            Map<String, Object> command = Json.parseObject(text);
            String node = (String) command.get("node");
            switch ((String) command.get("cmd")) {
                case "start":
                    Map<String, Object> own = new LinkedHashMap<>(settings);
                    own.put("dLegerSelfId", node);
                    Store store = Store.create(new File(folder, node).getPath(), own);
                    store.open(false);
                    running.put(node, store);
                    Main.line(status(node));
                    break;
                case "leader":
                    lead();
                    Main.line(Json.map("event", "leader", "node", leader.config.getdLegerSelfId(), "term", term));
                    break;
                case "put":
                    if (command.containsKey("unacknowledged")) {
                        Shim.put(leader.messages, Messages.single(leader.messages, command));
                        Main.line(Json.map("event", "put"));
                    } else {
                        Main.line(WriteCommand.put(leader, index++, command, done));
                    }
                    break;
                case "await":
                    awaitAll();
                    Main.line(Json.map("event", "reached"));
                    break;
                case "status":
                    Main.line(status(node));
                    break;
                case "stop":
                    running.remove(node).close();
                    Main.line(Json.map("event", "stopped", "node", node));
                    break;
                case "crash":
                    Main.halt(0);
                    return;
                default:
                    throw new IllegalArgumentException("cmd: " + command.get("cmd"));
            }
            Main.flush();
        }
        for (Store store : running.values()) {
            store.close();
        }
        Main.line(Json.map("event", "closed"));
    }

    /** As a broker that becomes the master (DLedgerRoleChangeHandler): a new leader first dispatches, then counts its queues. */
    private void lead() throws Exception {
        leader = awaitLeader(running.values());
        term = server(leader).getMemberState().currTerm();
    }

    static Store awaitLeader(Collection<Store> stores) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (System.currentTimeMillis() < end) {
            for (Store store : stores) {
                if (server(store).getMemberState().isLeader()) {
                    store.awaitDispatch();
                    while (committed(store) < server(store).getdLedgerStore().getLedgerEndIndex()
                        && server(store).getMemberState().isLeader() && System.currentTimeMillis() < end) {
                        Thread.sleep(20);
                    }
                    store.awaitDispatch();
                    store.messages.recoverTopicQueueTable();
                    return store;
                }
            }
            Thread.sleep(20);
        }
        throw new IllegalStateException("no leader after " + PATIENCE_MS + " ms");
    }

    private void awaitAll() throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        for (Store store : running.values()) {
            while (committed(store) < server(leader).getdLedgerStore().getLedgerEndIndex()) {
                if (System.currentTimeMillis() > end) {
                    throw new IllegalStateException(store.config.getdLegerSelfId() + " lags");
                }
                Thread.sleep(20);
            }
            store.awaitDispatch();
        }
    }

    private Map<String, Object> status(String node) throws Exception {
        Store store = running.get(node);
        DLedgerServer server = server(store);
        return Json.map("event", "status", "node", node, "rocketmq", Store.version(),
            "role", server.getMemberState().getRole().name(), "term", server.getMemberState().currTerm(),
            "endIndex", server.getdLedgerStore().getLedgerEndIndex(), "committedIndex", committed(store),
            "minPhyOffset", store.messages.getMinPhyOffset(), "maxPhyOffset", store.messages.getMaxPhyOffset());
    }

    private static long committed(Store store) throws Exception {
        return (Long) Store.call(server(store).getdLedgerStore(), "getCommittedIndex");
    }

    private static DLedgerServer server(Store store) {
        return ((DLedgerCommitLog) store.messages.getCommitLog()).getdLedgerServer();
    }
}
