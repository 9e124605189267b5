import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;

import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;

/** Kafka's own requests, responses and their headers, from JSON to bytes and back. */
final class Messages {
    private static final String PACKAGE = "org.apache.kafka.common.message.";

    private Messages() {
    }

    /**
     * The message `name`, given as `json` or `data` in `version`, or with defaults alone if neither is there; `unknown` adds tagged
     * fields that no version has. Answers with its bytes and its JSON `into` a version.
     */
    static JsonNode recode(JsonNode request) throws Exception {
        String name = PACKAGE + request.get("name").asText() + "Data";
        short version = (short) request.get("version").asInt();
        short into = (short) request.path("into").asInt(version);
        Class<?> type = Class.forName(name);
        Class<?> converter = Class.forName(name + "JsonConverter");
        Message message;
        try {
            if (request.has("json")) {
                message = (Message) converter.getMethod("read", JsonNode.class, short.class).invoke(null, request.get("json"), version);
            } else {
                message = (Message) type.getConstructor().newInstance();
            }
            int left = 0;
            if (request.has("data")) {
                ByteBufferAccessor bytes = new ByteBufferAccessor(ByteBuffer.wrap(Batches.fromBase64(request.get("data"))));
                message.read(bytes, version);
                left = bytes.remaining();
            }
            for (JsonNode unknown : request.path("unknown")) {
                message.unknownTaggedFields().add(new RawTaggedField(unknown.get(0).asInt(), Batches.fromBase64(unknown.get(1))));
            }
            byte[] written = MessageUtil.byteBufferToArray(MessageUtil.toByteBufferAccessor(message, into).buffer());
            ObjectNode answer = Oracle.JSON.createObjectNode().put("data", Batches.toBase64(written)).put("left", left);
            return answer.set("json",
                (JsonNode) converter.getMethod("write", type, short.class, boolean.class).invoke(null, message, into, false));
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause() instanceof Exception cause ? cause : thrown;
        }
    }

    /** The versions of the headers of an API's request and response in a version. */
    static JsonNode headers(JsonNode request) {
        ApiMessageType type = ApiMessageType.fromApiKey((short) request.get("key").asInt());
        short version = (short) request.get("version").asInt();
        return Oracle.JSON.createObjectNode().put("request", type.requestHeaderVersion(version)).put("response", type.responseHeaderVersion(version));
    }
}
