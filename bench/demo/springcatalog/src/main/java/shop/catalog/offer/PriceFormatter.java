package shop.catalog.offer;

import java.math.BigDecimal;
import java.math.RoundingMode;
import org.springframework.stereotype.Component;

@Component
public class PriceFormatter {
  private final ExchangeRates rates;

  PriceFormatter(ExchangeRates rates) {
    this.rates = rates;
  }

  public String format(int cents, String currency) {
    BigDecimal amount = BigDecimal.valueOf(cents).multiply(BigDecimal.valueOf(rates.fromEuro(currency))).divide(BigDecimal.valueOf(100));
    return amount.setScale("JPY".equals(currency) ? 0 : 2, RoundingMode.HALF_UP) + " " + currency;
  }
}
