// The register lists of wgmma for every accumulator width N (multiples of 8 up to 256). A list for N is the list for
// N-8 and four more registers; the numbers in INGOT_WGMMA_N are the operands that follow the accumulators. Included by
// wgmma.cuh.
#define WG_R8 "%0, %1, %2, %3"
#define WG_R16 WG_R8 ", %4, %5, %6, %7"
#define WG_R24 WG_R16 ", %8, %9, %10, %11"
#define WG_R32 WG_R24 ", %12, %13, %14, %15"
#define WG_R40 WG_R32 ", %16, %17, %18, %19"
#define WG_R48 WG_R40 ", %20, %21, %22, %23"
#define WG_R56 WG_R48 ", %24, %25, %26, %27"
#define WG_R64 WG_R56 ", %28, %29, %30, %31"
#define WG_R72 WG_R64 ", %32, %33, %34, %35"
#define WG_R80 WG_R72 ", %36, %37, %38, %39"
#define WG_R88 WG_R80 ", %40, %41, %42, %43"
#define WG_R96 WG_R88 ", %44, %45, %46, %47"
#define WG_R104 WG_R96 ", %48, %49, %50, %51"
#define WG_R112 WG_R104 ", %52, %53, %54, %55"
#define WG_R120 WG_R112 ", %56, %57, %58, %59"
#define WG_R128 WG_R120 ", %60, %61, %62, %63"
#define WG_R136 WG_R128 ", %64, %65, %66, %67"
#define WG_R144 WG_R136 ", %68, %69, %70, %71"
#define WG_R152 WG_R144 ", %72, %73, %74, %75"
#define WG_R160 WG_R152 ", %76, %77, %78, %79"
#define WG_R168 WG_R160 ", %80, %81, %82, %83"
#define WG_R176 WG_R168 ", %84, %85, %86, %87"
#define WG_R184 WG_R176 ", %88, %89, %90, %91"
#define WG_R192 WG_R184 ", %92, %93, %94, %95"
#define WG_R200 WG_R192 ", %96, %97, %98, %99"
#define WG_R208 WG_R200 ", %100, %101, %102, %103"
#define WG_R216 WG_R208 ", %104, %105, %106, %107"
#define WG_R224 WG_R216 ", %108, %109, %110, %111"
#define WG_R232 WG_R224 ", %112, %113, %114, %115"
#define WG_R240 WG_R232 ", %116, %117, %118, %119"
#define WG_R248 WG_R240 ", %120, %121, %122, %123"
#define WG_R256 WG_R248 ", %124, %125, %126, %127"
#define WG_O8(d) "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define WG_O16(d) WG_O8(d), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define WG_O24(d) WG_O16(d), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define WG_O32(d) WG_O24(d), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define WG_O40(d) WG_O32(d), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define WG_O48(d) WG_O40(d), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define WG_O56(d) WG_O48(d), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define WG_O64(d) WG_O56(d), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WG_O72(d) WG_O64(d), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define WG_O80(d) WG_O72(d), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define WG_O88(d) WG_O80(d), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define WG_O96(d) WG_O88(d), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define WG_O104(d) WG_O96(d), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define WG_O112(d) WG_O104(d), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define WG_O120(d) WG_O112(d), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define WG_O128(d) WG_O120(d), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define WG_O136(d) WG_O128(d), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define WG_O144(d) WG_O136(d), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define WG_O152(d) WG_O144(d), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define WG_O160(d) WG_O152(d), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define WG_O168(d) WG_O160(d), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define WG_O176(d) WG_O168(d), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define WG_O184(d) WG_O176(d), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define WG_O192(d) WG_O184(d), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define WG_O200(d) WG_O192(d), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define WG_O208(d) WG_O200(d), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define WG_O216(d) WG_O208(d), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define WG_O224(d) WG_O216(d), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define WG_O232(d) WG_O224(d), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define WG_O240(d) WG_O232(d), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define WG_O248(d) WG_O240(d), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define WG_O256(d) WG_O248(d), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define INGOT_WGMMA_8 WG_DEF(8, 4, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
#define INGOT_WGMMA_16 WG_DEF(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
#define INGOT_WGMMA_24 WG_DEF(24, 12, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
#define INGOT_WGMMA_32 WG_DEF(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
#define INGOT_WGMMA_40 WG_DEF(40, 20, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
#define INGOT_WGMMA_48 WG_DEF(48, 24, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
#define INGOT_WGMMA_56 WG_DEF(56, 28, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
#define INGOT_WGMMA_64 WG_DEF(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
#define INGOT_WGMMA_72 WG_DEF(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
#define INGOT_WGMMA_80 WG_DEF(80, 40, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
#define INGOT_WGMMA_88 WG_DEF(88, 44, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
#define INGOT_WGMMA_96 WG_DEF(96, 48, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
#define INGOT_WGMMA_104 WG_DEF(104, 52, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
#define INGOT_WGMMA_112 WG_DEF(112, 56, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
#define INGOT_WGMMA_120 WG_DEF(120, 60, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
#define INGOT_WGMMA_128 WG_DEF(128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#define INGOT_WGMMA_136 WG_DEF(136, 68, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
#define INGOT_WGMMA_144 WG_DEF(144, 72, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
#define INGOT_WGMMA_152 WG_DEF(152, 76, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
#define INGOT_WGMMA_160 WG_DEF(160, 80, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
#define INGOT_WGMMA_168 WG_DEF(168, 84, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
#define INGOT_WGMMA_176 WG_DEF(176, 88, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
#define INGOT_WGMMA_184 WG_DEF(184, 92, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
#define INGOT_WGMMA_192 WG_DEF(192, 96, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
#define INGOT_WGMMA_200 WG_DEF(200, 100, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
#define INGOT_WGMMA_208 WG_DEF(208, 104, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
#define INGOT_WGMMA_216 WG_DEF(216, 108, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
#define INGOT_WGMMA_224 WG_DEF(224, 112, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
#define INGOT_WGMMA_232 WG_DEF(232, 116, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
#define INGOT_WGMMA_240 WG_DEF(240, 120, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
#define INGOT_WGMMA_248 WG_DEF(248, 124, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
#define INGOT_WGMMA_256 WG_DEF(256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
