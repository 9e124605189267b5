import java.nio.charset.StandardCharsets;

/** Seeded keys and values: JSON-like text that the usual codecs shrink to about a third (zstd, gzip) or a half (lz4, snappy). */
final class DataMaker {
    private static final String[] SYLLABLES = {
        "ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qui", "ro", "su", "ta",
        "ve", "wi", "xo", "yu", "za", "bre", "cla", "dro", "fli", "gra", "pli", "sto", "tru", "ske", "mon", "tor"};
    private static final byte[][] WORDS = words();

    private long state;
    private byte[] out;
    private int filled;

    DataMaker(long seed) {
        state = seed;
    }

    /** The finaliser of splitmix64; `ours` draws its look-ups from the same numbers. */
    static long mix(long z) {
        z += 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    private static byte[][] words() {
        byte[][] words = new byte[2048][];
        long state = 42;
        for (int i = 0; i < words.length; i++) {
            StringBuilder word = new StringBuilder();
            state = mix(state + i);
            for (int left = 2 + (int) (state >>> 62); left > 0; left--) {
                state = mix(state);
                word.append(SYLLABLES[(int) (state >>> 59)]);
            }
            words[i] = word.toString().getBytes(StandardCharsets.US_ASCII);
        }
        return words;
    }

    long next() {
        state += 0x9E3779B97F4A7C15L;
        return mix(state);
    }

    int next(int below) {
        return (int) ((next() >>> 33) % below);
    }

    byte[] key(int space) {
        return String.format("user-%08d", next(space)).getBytes(StandardCharsets.US_ASCII);
    }

    byte[] value(int size) {
        out = new byte[size];
        filled = 0;
        put("{\"id\":" + next(100_000_000) + ",\"user\":\"u" + next(20_000) + "\",\"kind\":\"");
        put(word(16));
        put("\",\"ok\":" + (next(8) != 0) + ",\"text\":\"");
        while (filled < size - 2) {
            put(word(2048));
            put(next(12) == 0 ? "," : " ");
        }
        filled = Math.min(filled, size - 2);
        put("\"}");
        return out;
    }

    private void put(String text) {
        put(text.getBytes(StandardCharsets.US_ASCII));
    }

    private void put(byte[] bytes) {
        int count = Math.min(bytes.length, out.length - filled);
        System.arraycopy(bytes, 0, out, filled, count);
        filled += count;
    }

    /** The smaller of two draws: few words are common, many are rare. */
    private byte[] word(int space) {
        return WORDS[Math.min(next(space), next(space))];
    }
}
