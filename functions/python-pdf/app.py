"""An invoice as JSON in, as PDF out."""
from decimal import Decimal

from fastapi import FastAPI, HTTPException, Response
from fpdf import FPDF
from fpdf.errors import FPDFUnicodeEncodingException
from pydantic import BaseModel, Field

app = FastAPI(title="Invoices")


class Item(BaseModel):
    text: str = Field(max_length=200)
    count: int = Field(gt=0, le=1_000_000)
    price: Decimal = Field(ge=0, decimal_places=2, max_digits=12)


class Invoice(BaseModel):
    number: str = Field(max_length=40)
    customer: str = Field(max_length=200)
    currency: str = Field(default="EUR", pattern="^[A-Z]{3}$")
    items: list[Item] = Field(min_length=1, max_length=500)


SAMPLE = Invoice(
    number="2026-0042",
    customer="Jane Doe, 1 Long Street, Springfield",
    items=[Item(text=f"Part {n}", count=n, price=Decimal("9.95") * n) for n in range(1, 41)],
)


def render(invoice: Invoice) -> bytes:
    pdf = FPDF(format="A4")
    pdf.set_title(f"Invoice {invoice.number}")
    pdf.add_page()
    pdf.set_font("Helvetica", "B", 18)
    pdf.cell(text=f"Invoice {invoice.number}", new_x="LMARGIN", new_y="NEXT")
    pdf.set_font("Helvetica", size=11)
    pdf.multi_cell(w=0, text=f"For {invoice.customer}", new_x="LMARGIN", new_y="NEXT")
    pdf.ln(6)
    total = Decimal(0)
    with pdf.table(col_widths=(6, 1, 2, 2), text_align=("LEFT", "RIGHT", "RIGHT", "RIGHT")) as table:
        table.row(("Item", "Count", "Price", "Sum"))
        for item in invoice.items:
            total += item.count * item.price
            table.row((item.text, str(item.count), f"{item.price:.2f}", f"{item.count * item.price:.2f}"))
    pdf.ln(4)
    pdf.set_font(style="B")
    pdf.cell(w=0, text=f"Total {total:.2f} {invoice.currency}", align="R")
    return bytes(pdf.output())


def reply(invoice: Invoice) -> Response:
    try:
        return Response(render(invoice), media_type="application/pdf")
    except FPDFUnicodeEncodingException as error:
        raise HTTPException(422, f"the font has no {error.character!r}") from None


@app.get("/")
def sample() -> Response:
    return reply(SAMPLE)


@app.post("/")
def invoice(invoice: Invoice) -> Response:
    return reply(invoice)
