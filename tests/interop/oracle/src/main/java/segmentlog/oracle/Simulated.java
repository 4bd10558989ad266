package segmentlog.oracle;

import java.io.File;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Calendar;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What RocketMQ's classes are told about the clock and the disks in `retain` and `write --clock`; see Agent. Untouched, all of it is real. */
public final class Simulated {
    static volatile boolean active;

    /** Added to the clock, or the stopped clock itself. */
    private static volatile long shift;
    private static volatile long stopped = -1;

    /** The pretended time of day when the first round begins, in ms since midnight; -1: the clock's own. */
    private static volatile long timeOfDay = -1;
    private static volatile long advanced;

    private static volatile long diskSize = 1_000_000_000_000L;

    /** Used share of the file system of each directory; the longest prefix of a path counts. */
    private static final Map<String, BigDecimal> USAGE = new LinkedHashMap<>();

    private static final List<File> DELETED = new ArrayList<>();
    private static volatile Boolean timeUp;
    private static volatile Boolean spaceFull;

    private Simulated() {
    }

    // ---- called from RocketMQ's classes

    public static long currentTimeMillis() {
        return stopped >= 0 ? stopped : System.currentTimeMillis() + shift;
    }

    public static Calendar calendar() {
        Calendar calendar = Calendar.getInstance();
        calendar.setTimeInMillis(currentTimeMillis());
        if (timeOfDay >= 0) {
            long hour = (timeOfDay + advanced) / 3_600_000 % 24;
            calendar.set(Calendar.HOUR_OF_DAY, (int) hour);
        }
        return calendar;
    }

    public static long getTotalSpace(File file) {
        return usage(file) == null ? file.getTotalSpace() : diskSize;
    }

    public static long getFreeSpace(File file) {
        BigDecimal usage = usage(file);
        return usage == null ? file.getFreeSpace() : diskSize - usage.multiply(BigDecimal.valueOf(diskSize)).longValue();
    }

    public static long getUsableSpace(File file) {
        return usage(file) == null ? file.getUsableSpace() : getFreeSpace(file);
    }

    public static boolean delete(File file) {
        boolean deleted = file.delete();
        if (deleted) {
            synchronized (DELETED) {
                DELETED.add(file);
            }
        }
        return deleted;
    }

    public static void isTimeToDelete(boolean answer) {
        timeUp = answer;
    }

    public static void isSpaceToDelete(boolean answer) {
        spaceFull = answer;
    }

    // ---- called from the oracle

    /** Everything is real again. */
    static synchronized void reset() {
        shift = 0;
        stopped = -1;
        timeOfDay = -1;
        advanced = 0;
        diskSize = 1_000_000_000_000L;
        USAGE.clear();
        takeDeleted();
        takeTimeUp();
        takeSpaceFull();
        System.clearProperty("rocketmq.broker.diskSpaceWarningLevelRatio");
        System.clearProperty("rocketmq.broker.diskSpaceCleanForciblyRatio");
    }

    static void stopClock(long now) {
        stopped = now;
    }

    static void setHour(int hour) {
        timeOfDay = hour * 3_600_000L;
    }

    static void advance(long millis) {
        advanced += millis;
        if (stopped >= 0) {
            stopped += millis;
        } else {
            shift += millis;
        }
    }

    static void setDiskSize(long bytes) {
        diskSize = bytes;
    }

    static synchronized void setUsage(String directory, BigDecimal used) {
        USAGE.put(new File(directory).getAbsolutePath(), used);
    }

    private static synchronized BigDecimal usage(File file) {
        String path = file.getAbsolutePath();
        String best = null;
        for (String directory : USAGE.keySet()) {
            if ((path.equals(directory) || path.startsWith(directory + File.separator))
                && (best == null || directory.length() > best.length())) {
                best = directory;
            }
        }
        return best == null ? null : USAGE.get(best);
    }

    /** The files deleted since the last call, in order. */
    static List<File> takeDeleted() {
        synchronized (DELETED) {
            List<File> deleted = new ArrayList<>(DELETED);
            DELETED.clear();
            return deleted;
        }
    }

    static Boolean takeTimeUp() {
        Boolean answer = timeUp;
        timeUp = null;
        return answer;
    }

    static Boolean takeSpaceFull() {
        Boolean answer = spaceFull;
        spaceFull = null;
        return answer;
    }
}
