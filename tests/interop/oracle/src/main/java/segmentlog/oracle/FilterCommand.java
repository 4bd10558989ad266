package segmentlog.oracle;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * `filter`: SQL92 expressions on rows of properties. Compiled as the broker's ConsumerFilterManager does, evaluated as its
 * ExpressionMessageFilter does; only the broker's context, a map look-up, is written again here.
 */
final class FilterCommand {
    private FilterCommand() {
    }

    @SuppressWarnings("unchecked")
    static void run(Args args) throws Exception {
        args.need("cases");
        Map<String, Object> cases = args.json("cases");
        List<Map<String, Object>> rows = (List<Map<String, Object>>) cases.get("rows");
        for (String text : (List<String>) cases.get("expressions")) {
            Main.line(answer(text, rows));
        }
    }

    private static Map<String, Object> answer(String text, List<Map<String, Object>> rows) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (MQFilterException e) {
            return Json.map("expression", text, "error", String.valueOf(e.getCause()));
        }
        StringBuilder answers = new StringBuilder();
        for (Map<String, Object> row : rows) {
            answers.append(letter(expression, row));
        }
        return Json.map("expression", text, "answers", answers.toString());
    }

    private static char letter(Expression expression, Map<String, Object> row) {
        try {
            Object result = expression.evaluate(new Properties(row));
            return result == null ? 'N' : (Boolean) result ? 'T' : 'F';
        } catch (Exception e) {
            return 'E';
        }
    }

    /** The broker's MessageEvaluationContext, without the broker's jar. */
    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values;

        Properties(Map<String, Object> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
