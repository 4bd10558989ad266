package segmentlog.oracle;

import java.io.File;
import java.io.RandomAccessFile;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.store.RunningFlags;

/** `retain`: what the store's own cleaning does with a store, round by round. */
final class RetainCommand {
    private final Store store;
    private final List<File> logs = new ArrayList<>();
    private final File queues;
    private final File index;

    private RetainCommand(Store store) {
        this.store = store;
        // several directories: since 4.9.2
        String splitter = System.getProperty("rocketmq.broker.multiPathSplitter", ",");
        for (String path : store.config.getStorePathCommitLog().trim().split(java.util.regex.Pattern.quote(splitter))) {
            logs.add(new File(path).getAbsoluteFile());
        }
        File root = new File(store.config.getStorePathRootDir());
        queues = new File(root, "consumequeue");
        index = new File(root, "index");
    }

    static void run(Args args) throws Exception {
        if (!Simulated.active) {
            throw new IllegalStateException("retain needs the oracle's agent: start it with `run`");
        }
        if (!args.has("cases")) {
            one(args);
            return;
        }
        // Many stores in one JVM: starting it takes longer than a store does.
        int number = 0;
        for (String line : Files.readAllLines(Paths.get(args.need("cases")), StandardCharsets.UTF_8)) {
            List<?> words = (List<?>) Json.parse(line);
            Main.line(Json.map("type", "case", "n", number++));
            Simulated.reset();
            one(new Args(words.toArray(new String[0]), 0));
        }
    }

    private static void one(Args args) throws Exception {
        Store store = Store.create(args.need("store"), args.json("config"), false);
        store.suspendSchedules();
        store.open(false);
        store.awaitDispatch();
        new RetainCommand(store).rounds(args);
        store.closeUnless(args.flag("no-close"));
    }

    private void rounds(Args args) throws Exception {
        int rounds = args.getInt("rounds", 1);
        String[] usages = args.has("usage") ? args.need("usage").split(";") : new String[0];
        String holds = args.get("hold", "");
        int releaseAfter = args.getInt("release-after", Integer.MAX_VALUE);
        List<Object> held = new ArrayList<>();
        for (String what : holds.isEmpty() ? new String[0] : holds.split(",")) {
            held.add(hold(what));
        }
        if (args.has("hour")) {
            int hour = args.getInt("hour", 0);
            if (hour < 0 || hour > 23) {
                throw new IllegalArgumentException("--hour " + hour);
            }
            Simulated.setHour(hour);
        }
        if (args.has("disk-size")) {
            Simulated.setDiskSize(args.getLong("disk-size", 0));
        }
        if (args.has("now")) {
            Simulated.stopClock(args.getLong("now", 0));
        }
        if (args.flag("manual")) {
            store.messages.executeDeleteFilesManually();
        }
        Object cleaning = Store.field(store.messages, "cleanCommitLogService");
        Main.line(state("before"));
        Simulated.takeDeleted();
        for (int round = 1; round <= rounds; round++) {
            if (round > 1) {
                Simulated.advance(args.getLong("advance", 0));
            }
            if (usages.length > 0) {
                usage(usages[Math.min(round, usages.length) - 1]);
            }
            int manual = manualLeft(cleaning);
            long now = Simulated.currentTimeMillis();
            int hour = Simulated.calendar().get(java.util.Calendar.HOUR_OF_DAY);
            TreeMap<String, File> was = files();
            Store.call(store.messages, "cleanFilesPeriodically");
            if (Store.hasMethod(store.messages, "cleanQueueFilesPeriodically")) {
                // 5.3: the queues have a timer of their own
                Store.call(store.messages, "cleanQueueFilesPeriodically");
            } else if (Store.hasMethod(store.messages, "getQueueStore")) {
                Object queues = Store.call(store.messages, "getQueueStore");
                if (Store.hasMethod(queues, "cleanQueueFilesPeriodically")) {
                    // 5.4 and later: the queues clean themselves
                    Store.call(queues, "cleanQueueFilesPeriodically");
                }
            }
            Map<String, Object> line = Json.map("type", "round", "n", round, "now", now, "hour", hour,
                "deleted", deleted(was), "diskFull", diskFull(),
                "cleanImmediately", Store.field(cleaning, "cleanImmediately"),
                "timeUp", Simulated.takeTimeUp(), "spaceFull", Simulated.takeSpaceFull(), "manual", manual > 0,
                "manualLeft", manualLeft(cleaning), "minPhyOffset", store.messages.getMinPhyOffset());
            if (!Shim.V5) {
                // 4.x looks at the CommitLog's disk again on a timer of its own, every 10 s
                Store.call(cleaning, "isSpaceFull");
                line.put("diskFullAfterCheck", diskFull());
            }
            Main.line(line);
            if (round == releaseAfter) {
                for (Object file : held) {
                    invoke(file, "release");
                }
            }
        }
        Main.line(state("after"));
    }

    /** One round's `P[/P2...][,Q]`: the CommitLog directories in their order, then the consumequeue. */
    private void usage(String text) {
        String[] parts = text.trim().split(",");
        String[] physical = parts[0].split("/");
        for (int i = 0; i < logs.size(); i++) {
            Simulated.setUsage(logs.get(i).getPath(), share(physical[Math.min(i, physical.length - 1)]));
        }
        Simulated.setUsage(queues.getPath(), share(parts[parts.length - 1].split("/")[0]));
    }

    /** 0.85, 85 and 85% are the same; 1 is all, 1% is one percent. */
    private static BigDecimal share(String text) {
        String number = text.trim();
        boolean percent = number.endsWith("%");
        BigDecimal value = new BigDecimal(percent ? number.substring(0, number.length() - 1) : number);
        if (percent || value.compareTo(BigDecimal.ONE) > 0) {
            value = value.movePointLeft(2);
        }
        if (value.signum() < 0 || value.compareTo(BigDecimal.ONE) > 0) {
            throw new IllegalArgumentException("--usage " + text);
        }
        return value;
    }

    /** `first` or a base offset: a CommitLog segment. `TOPIC/QUEUE`: its first file. `index`: the first index file. */
    private Object hold(String what) throws Exception {
        Object file;
        if (what.equals("index")) {
            Object first = ((List<?>) Store.field(Store.field(store.messages, "indexService"), "indexFileList")).get(0);
            file = Store.field(first, "mappedFile");
        } else if (what.contains("/")) {
            int cut = what.lastIndexOf('/');
            Object queue = Shim.queues(store.messages).get(what.substring(0, cut))
                .get(Integer.parseInt(what.substring(cut + 1)));
            file = invoke(Store.field(queue, "mappedFileQueue"), "getFirstMappedFile");
        } else {
            Object log = Store.field(store.messages.getCommitLog(), "mappedFileQueue");
            file = null;
            for (Object one : (List<?>) invoke(log, "getMappedFiles")) {
                if (what.equals("first") || ((Number) invoke(one, "getFileFromOffset")).longValue() == Long.parseLong(what)) {
                    file = one;
                    break;
                }
            }
        }
        if (file == null || !(Boolean) invoke(file, "hold")) {
            throw new IllegalArgumentException("--hold " + what);
        }
        return file;
    }

    private static Object invoke(Object target, String name) throws Exception {
        Method method = target.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(target);
    }

    private static int manualLeft(Object cleaning) throws Exception {
        Object left = Store.field(cleaning, "manualDeleteFileSeveralTimes");
        return left instanceof AtomicInteger ? ((AtomicInteger) left).get() : (Integer) left;
    }

    private boolean diskFull() throws Exception {
        int bit = (Integer) Store.staticField(RunningFlags.class, "DISK_FULL_BIT");
        return (store.messages.getRunningFlags().getFlagBits() & bit) != 0;
    }

    private static File[] list(File directory) {
        File[] files = directory.listFiles();
        if (files == null) {
            return new File[0];
        }
        Arrays.sort(files);
        return files;
    }

    /** Every file of the three directories by its path. */
    private TreeMap<String, File> files() {
        TreeMap<String, File> files = new TreeMap<>();
        for (File log : logs) {
            for (File file : list(log)) {
                files.put(file.getPath(), file);
            }
        }
        for (File topic : list(queues)) {
            for (File queue : list(topic)) {
                for (File file : list(queue)) {
                    files.put(file.getPath(), file);
                }
            }
        }
        for (File file : list(index)) {
            files.put(file.getPath(), file);
        }
        return files;
    }

    /** What is gone since `was`, in the order of the deletions. */
    private Map<String, Object> deleted(TreeMap<String, File> was) {
        List<Object> log = new ArrayList<>();
        List<Object> queue = new ArrayList<>();
        List<Object> indexes = new ArrayList<>();
        List<File> gone = Simulated.takeDeleted();
        TreeMap<String, File> unseen = new TreeMap<>(was);
        unseen.keySet().removeAll(files().keySet());
        for (File file : gone) {
            unseen.remove(file.getAbsolutePath());
        }
        gone.addAll(unseen.values());
        for (File file : gone) {
            File parent = file.getAbsoluteFile().getParentFile();
            if (logs.contains(parent)) {
                log.add(Long.parseLong(file.getName()));
            } else if (parent.equals(index)) {
                indexes.add(file.getName());
            } else if (parent.getParentFile().getParentFile().equals(queues)) {
                queue.add(Json.map("topic", parent.getParentFile().getName(), "queueId", Integer.parseInt(parent.getName()),
                    "base", Long.parseLong(file.getName())));
            }
        }
        return Json.map("commitlog", log, "consumequeue", queue, "index", indexes);
    }

    private Map<String, Object> state(String type) throws Exception {
        List<Object> segments = new ArrayList<>();
        for (File log : logs) {
            for (File file : list(log)) {
                Map<String, Object> segment = Json.map("base", Long.parseLong(file.getName()), "size", file.length(),
                    "modified", file.lastModified());
                if (logs.size() > 1) {
                    segment.put("directory", log.getName());
                }
                segments.add(segment);
            }
        }
        List<Object> all = new ArrayList<>();
        for (File topic : list(queues)) {
            for (File queue : list(topic)) {
                List<Object> files = new ArrayList<>();
                for (File file : list(queue)) {
                    files.add(Json.map("base", Long.parseLong(file.getName()), "size", file.length()));
                }
                int queueId = Integer.parseInt(queue.getName());
                all.add(Json.map("topic", topic.getName(), "queueId", queueId, "files", files,
                    "minOffset", store.messages.getMinOffsetInQueue(topic.getName(), queueId),
                    "maxOffset", store.messages.getMaxOffsetInQueue(topic.getName(), queueId)));
            }
        }
        List<Object> indexes = new ArrayList<>();
        for (File file : list(index)) {
            try (RandomAccessFile in = new RandomAccessFile(file, "r")) {
                in.seek(16);
                indexes.add(Json.map("name", file.getName(), "size", file.length(),
                    "beginPhyOffset", in.readLong(), "endPhyOffset", in.readLong()));
            }
        }
        return Json.map("type", type, "version", Store.version(), "minPhyOffset", store.messages.getMinPhyOffset(),
            "maxPhyOffset", store.messages.getMaxPhyOffset(), "diskFull", diskFull(),
            "commitlog", segments, "consumequeue", all, "index", indexes);
    }
}
