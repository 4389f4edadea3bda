"""The words a simulated engine answers with, in the order of their token ids. Append only: ids must not move."""

_TEXT = """
able about above across action active after again agent allow almost along already also alter always amber among
angle animal answer apple april area arm around arrive artist ask autumn average awake away baker balance bank
basket beach bear beauty become bed before begin behind bell below bench beside better between beyond bicycle bird
black blue board boat body book border bottle bottom bowl branch bread break breeze bridge bright bring broad
brother brown build burn bus busy butter button cabin cake call calm camera camp candle canvas captain car card care
carry castle cause cedar centre certain chair chance change chapter charge cheese child choice circle city class
clear climb clock close cloth cloud coast coat coffee cold collect colour common concert cook copper corner cotton
count country course cousin cover creek cross crowd culture cup current curtain daily dance dark daughter dawn day
decide deep degree desert design desk detail dinner direct distance doctor door double doubt dozen draw dream dress
drift drink drive drop dry dust each eager early earth east easy echo edge effort eight either elbow eleven empty
end energy engine enjoy enough enter equal evening event every exact example explain eye fabric face fact fair fall
family famous farm farmer fast father favour feather feel fence few field fifteen fifty figure fill film final find
finger finish fire first fish five flag flat float floor flow flower fly follow food foot forest forget forgive fork
form forty forward four frame free fresh friend front fruit full future gallery game garden gate gather gentle giant
gift give glad glass glove goal gold good grain grand grass gravel great green greet grey ground group grow guard
guess guest guide guitar habit half hall hammer hand happen happy harbour hard harvest hat hear heart heat heavy
height help herb here hidden high hill history hold holiday hollow home honest honey hope horizon horse hotel hour
house human hundred hurry ice idea image inch include indoor inside invite iron island ivory jacket january join
journey joy judge juice july jump june jungle just keep kettle key kind kitchen kite knee knife knock know ladder
lady lake lamp land lantern large last late laugh lawn layer lead leaf learn leather leave left legend lemon length
less lesson letter level library lift light lightning like line linen lion listen little live local long look loud
love low lucky lunch machine magic main make manner many map maple marble march margin market master match matter
meadow meal mean measure meet melody member memory mention metal middle mild mile milk million mind minute mirror
modern moment monday money month moon morning moss mother motion mountain mouth move much museum music name narrow
nation nature near neat neck needle neighbour nest never new next night nine noble noise noon north note nothing
notice novel number oak object ocean offer office often old olive open orange orbit orchard order other outside oven
over owl own page paint pair palace paper parade parcel parent park part party pass past path patient pattern pause
peace pear pearl pen pencil people pepper perfect perhaps person phone photo piano picture piece pilot pine pink
place plain plan planet plant plate platform play please plenty pocket poem point polish pond porch port post
pottery pour power present pretty price print prize promise proud public pull purple push quarter queen question
quick quiet quite rabbit radio rail rain rapid rather reach read ready real reason record red region relax remain
remember rent repair repeat reply rest result return rhythm ribbon rice rich ride right ring ripe rise river road
roast robin rock roof room root rope rose rough round route row rule run rush saddle safe sail salt same sample sand
saturday save scale scene school science score sea search season seat second secret seed seem sell send sense
separate serve settle seven several shade shadow shape share sharp sheep shelf shell shelter shine ship shirt shoe
shop shore short should shoulder show side sign signal silence silver simple since sing sister six size skill skin
sky sleep slope slow small smile smoke smooth snow soap soft soil some song soon sound soup south space spare speak
special speed spice spin spirit spoon spread spring square stable stage stairs stand star start station stay steady
steam step stick still stone stool store storm story straight strange stream street strong study style sugar suit
summer sun sunday supper sure surface swan sweet swim swing table tailor take tale talk tall task taste teach team
temple ten tent test thank theatre thick thin thing think third thirty thought thousand thread three through thunder
thursday ticket tide tidy tiger timber time tiny title today together tomato tomorrow tool top total touch toward
tower town trace track trade traffic trail train travel tree triangle trip true trust try tuesday tunnel turn twelve
twenty twice two umbrella uncle under until upper use useful usual valley value van velvet very vessel view village
vine violin visit voice voyage wagon wait wake walk wall want warm wash watch water wave way weather week welcome
well west whale wheat wheel while whisper white whole wide wild willow wind window wing winter wire wise wish with
wonder wood wool word work world worth write yard year yellow yesterday young zebra zero
"""

WORDS: tuple[str, ...] = tuple(_TEXT.split())
